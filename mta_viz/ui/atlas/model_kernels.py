"""The kernel table of the page's model, made once for the weights and not again for every prompt."""

from collections.abc import Hashable

from mta_viz.analysis.shapes.table import Row, kernel_table
from mta_viz.ui.cache import changed, remember
from mta_viz.ui.open_page import Page


def weights_key(page: Page) -> tuple[Hashable, ...]:
    """Equal only for equal weights: the file and its time; the run's key for a model from no file."""
    source = page.model.source
    return (page.key,) if source is None else (str(source.path), changed(source.path), str(page.model.dtype))


def rows_of(page: Page) -> tuple[Row, ...]:
    """`kernel_table` of the page's model."""
    weights, config = page.model.state_dict(), page.model.config
    return remember(lambda: kernel_table(weights, config), "kernel table", *weights_key(page))
