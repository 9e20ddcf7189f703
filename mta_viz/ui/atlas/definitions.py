"""Definitions: what every score and name of the atlas means, and how often names and probes err."""

from collections.abc import Sequence

import streamlit as st

from mta_viz.analysis.shapes.definitions import sections
from mta_viz.analysis.shapes.measured import MeasuredRate, measured_rates
from mta_viz.tasks.intervals import wilson_interval
from mta_viz.ui import state
from mta_viz.ui.address import draw_address
from mta_viz.ui.atlas.gallery_words import limits_line
from mta_viz.ui.atlas.model_kernels import rows_of
from mta_viz.ui.open_page import Page
from mta_viz.ui.widgets import caption, plain

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
PROBES = "Kernels that learned nothing, and the share of them that pass the probe of a name; 1 % is meant."
COUNTED = "Made by python -m benchmarks.shape_rates. Intervals: 95 %, Wilson."


def draw_definitions(page: Page) -> None:
    """The definitions, then the three tables of measured rates."""
    draw_address(f"{state.view().checkpoint} · definitions")
    if limits := limits_line(rows_of(page)):
        st.info(plain(limits))
    for section in sections():
        st.subheader(section.title)
        st.markdown(plain(section.intro))
        st.table(
            [{"name": f"**{plain(name)}**", "definition": plain(text)} for name, text in section.entries]
        )
    rates = measured_rates()
    _draw_rates("How often noise gets a name", FALSE_NAMES, "with a name", rates.false_names)
    _draw_rates("How often a shape is found", POWER, "rightly named", rates.power)
    _draw_rates("How often noise passes a probe", PROBES, "pass", rates.probes)
    caption(COUNTED)


def _draw_rates(title: str, words: str, hits: str, rates: Sequence[MeasuredRate]) -> None:
    st.subheader(title)
    st.markdown(plain(words))
    st.dataframe([_row(rate, hits) for rate in rates], hide_index=True, height=min(36 * len(rates) + 38, 460))


def _row(rate: MeasuredRate, hits: str) -> dict[str, object]:
    low, high = wilson_interval(rate.hits, rate.n)
    most = [f"{name} {number / rate.n:.1%}" for name, number in rate.of_which.items() if number]
    return {
        "kernels": rate.kernels,
        "size": rate.size,
        "n": rate.n,
        hits: f"{rate.share:.1%}",
        "interval": f"{low:.1%} to {high:.1%}",
        "of which" if hits == "with a name" else "wrongly named": ", ".join(most[:3]),
    }
