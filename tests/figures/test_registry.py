"""Every figure that has a name is listed where it is drawn, and drawn again from JSON."""

from mta_viz.figures import registry
from tests.figures import (
    test_figures_kernels,
    test_named_attention,
    test_named_cause,
    test_named_compare,
    test_named_labs,
)

LISTS = (
    test_named_attention.FIGURES,
    test_named_attention.TABLES,
    test_named_cause.FIGURES,
    test_named_cause.OF_MANY_RUNS,
    test_named_cause.TABLES,
    test_named_compare.FIGURES,
    test_named_labs.FIGURES,
    test_named_labs.OF_LETTERS,
    test_named_labs.OF_A_RUN,
    test_named_labs.OF_A_FILE,
    test_figures_kernels.FIGURES,
    test_figures_kernels.SHIPPED,
    test_figures_kernels.TRAINED,
    test_figures_kernels.NAMED,
)


def test_every_figure_stands_in_the_list_of_a_test() -> None:
    listed = {entry if isinstance(entry, str) else entry[0] for figures in LISTS for entry in figures}
    assert listed == registry().keys()


def test_every_figure_can_be_made() -> None:
    """None leaves open how its result, or what it is of, comes about."""
    lacking = {name: sorted(kind.__abstractmethods__) for name, kind in registry().items()}
    assert {name: open for name, open in lacking.items() if open} == {}
