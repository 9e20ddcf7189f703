"""The kernels of the page's model: their table, made once for the weights, their names, choosing one."""

from collections.abc import Hashable

from mta_viz.analysis.kernels import KernelId
from mta_viz.analysis.shapes.table import Row, kernel_table
from mta_viz.ui import state
from mta_viz.ui.cache import changed, remember
from mta_viz.ui.numbering import head_label, layer_label
from mta_viz.ui.open_page import Page

SHORT = {"pre": "pre", "post": "post", "head_pre": "mix pre", "head_post": "mix post"}


def weights_key(page: Page) -> tuple[Hashable, ...]:
    """Equal only for equal weights: the file and its time; the run's key for a model from no file."""
    source = page.model.source
    return (page.key,) if source is None else (str(source.path), changed(source.path), str(page.model.dtype))


def rows_of(page: Page) -> tuple[Row, ...]:
    """`kernel_table` of the page's model; the same for every prompt."""
    weights, config = page.model.state_dict(), page.model.config
    return remember(lambda: kernel_table(weights, config), "kernel table", *weights_key(page))


def kernel_of(row: Row) -> KernelId:
    """Which kernel a row of the table is about."""
    return KernelId(row["layer"], row["head"], row["where"])


def short_name(kernel: KernelId, numbering: int) -> str:
    """`L2 H1 pre`, as the visitor counts."""
    layer, head = layer_label(kernel.layer, numbering), head_label(kernel.head, numbering)
    return f"{layer} {head} {SHORT[kernel.where]}"


def select_kernel(kernel: KernelId) -> None:
    """Make a kernel the chosen one, here and on the other pages."""
    state.select(layer=kernel.layer, head=kernel.head, where=kernel.where)
