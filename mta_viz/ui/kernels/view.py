"""What the Kernels page draws: a bar of its parts, and the chosen one; here, what names and scores mean."""

from collections.abc import Callable, Sequence

import streamlit as st

from mta_viz.analysis.kernels.definitions import MeasuredRate, measured_rates, sections
from mta_viz.analysis.kernels.table import ShapeCounts, shape_counts
from mta_viz.errors import MtaVizError
from mta_viz.figures.kernels.gallery import kernel_rows
from mta_viz.tasks.intervals import wilson_interval
from mta_viz.ui.kernels.gallery import draw_gallery, limits_line, verdict_line
from mta_viz.ui.kernels.layer import draw_layer, draw_training
from mta_viz.ui.kernels.model import PART, PARTS, weights_source
from mta_viz.ui.kernels.paper import draw_figures
from mta_viz.ui.shell import state
from mta_viz.ui.shell.address import draw_address
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.widgets import caption, plain

FALSE_NAMES = (
    "Kernels that learned nothing, and the share of them that got any name. Template names are solid; heavy "
    "tails (Laplace, t3) hold real single taps, and noise that is smooth is smooth: there an edge, a single "
    "tap or smoothing needs its probe."
)
POWER = (
    "Shapes planted in Gaussian noise of standard deviation 1, and the share of them that got the right "
    "name. An edge or a single tap must stand out by much more than a line of taps before it is named: no "
    "edge named means none clear, not none."
)
PROBES = (
    "Kernels that learned nothing, and the share of them that pass the probe of a name. The thresholds are "
    "set for 1 %; over all lines below it is {share}, at most {most}."
)
COUNTED = "Made by python -m benchmarks.shape_rates. Intervals: 95 %, Wilson."


def draw_kernels(page: Page) -> None:
    """The page's body: only the chosen part is computed."""
    draw: tuple[Callable[[Page], None], ...] = (
        *(draw_gallery, draw_layer, draw_training),
        *(draw_figures, draw_definitions),
    )
    part = st.segmented_control(
        "Part", PARTS, required=True, label_visibility="collapsed", **PART.widget(PARTS)
    )
    try:
        draw[PARTS.index(part)](page)
    except MtaVizError as error:
        st.error(plain(str(error)))


def draw_definitions(page: Page) -> None:
    """The definitions, then the three tables of measured rates."""
    draw_address(f"{state.selection().checkpoint} · definitions")
    rows = kernel_rows(weights_source(page))
    if limits := limits_line(rows):
        st.info(plain(limits))
    if (counts := shape_counts(rows)).kernels:
        st.text(f"{verdict_line(counts)} {_survivors(counts)}")
    for section in sections():
        st.subheader(section.title)
        st.markdown(plain(section.intro))
        st.table(
            [{"name": f"**{plain(name)}**", "definition": plain(text)} for name, text in section.entries]
        )
    rates = measured_rates()
    _draw_rates("How often noise gets a name", FALSE_NAMES, [_false_name(rate) for rate in rates.false_names])
    _draw_rates("How often a shape is found", POWER, [_power(rate) for rate in rates.power])
    probes = [_counted(rate, "pass") for rate in rates.probes]
    _draw_rates("How often noise passes a probe", _passed(rates.probes), probes)
    caption(COUNTED)


def _survivors(counts: ShapeCounts) -> str:
    return (
        "Names from templates that survive Benjamini-Hochberg over all kernels: "
        f"{counts.survive} of {counts.templates}; edges and single taps are not among the tests."
    )


def _draw_rates(title: str, words: str, rows: Sequence[dict[str, object]]) -> None:
    st.subheader(title)
    st.markdown(plain(words))
    st.dataframe(list(rows), hide_index=True, height=min(36 * len(rows) + 38, 460))


def _false_name(rate: MeasuredRate) -> dict[str, object]:
    return {**_counted(rate, "with a name"), "of which": _names(rate)}


def _power(rate: MeasuredRate) -> dict[str, object]:
    wrong = sum(rate.of_which.values()) / rate.n
    return {**_counted(rate, "rightly named"), "wrongly": _percent(wrong), "of which": _names(rate)}


def _passed(rates: Sequence[MeasuredRate]) -> str:
    share = sum(rate.hits for rate in rates) / sum(rate.n for rate in rates)
    return PROBES.format(share=_percent(share), most=_percent(max(rate.share for rate in rates)))


def _counted(rate: MeasuredRate, hits: str) -> dict[str, object]:
    low, high = wilson_interval(rate.hits, rate.n)
    return {
        "kernels": rate.kernels,
        "size": rate.size,
        "n": rate.n,
        hits: _percent(rate.share),
        "interval": f"{_percent(low)} to {_percent(high)}",
    }


def _names(rate: MeasuredRate) -> str:
    return ", ".join(f"{name} {_percent(number / rate.n)}" for name, number in rate.of_which.items())


def _percent(share: float) -> str:
    """Two decimals where they tell something beside a bar of 1 %."""
    return f"{share:.2%}" if share < 0.1 else f"{share:.1%}"
