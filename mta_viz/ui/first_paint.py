"""What the first visitor sees while torch is imported. Imports nothing heavier than plotly."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import streamlit as st

from mta_viz.plots.parts import nothing_yet


@contextmanager
def first_paint() -> Iterator[None]:
    """Say what is happening and draw an empty figure in a place that is empty again afterwards.

    The figure makes the browser load its drawing library while the server loads its own.
    """
    place = st.empty()
    if "torch" not in sys.modules:
        with place.container():
            st.progress(0.0, text="Loading the libraries (first time only)")
            st.plotly_chart(nothing_yet(300), key="first.paint", theme=None, config={"staticPlot": True})
    yield
    place.empty()
