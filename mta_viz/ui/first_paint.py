"""What the first visitor sees while torch is imported. Imports only streamlit and plotly."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import streamlit as st


@contextmanager
def first_paint() -> Iterator[None]:
    """Say what is happening and draw an empty figure in a place that is empty again afterwards.

    The figure makes the browser load its drawing library while the server loads its own.
    """
    place = st.empty()
    if "torch" not in sys.modules:
        with place.container():
            st.progress(0.0, text="Loading the libraries (first time only)")
            blank = {"layout": {"height": 460, "paper_bgcolor": "rgba(0,0,0,0)", "template": "none"}}
            st.plotly_chart(blank, key="first.paint", theme=None, config={"staticPlot": True})
    yield
    place.empty()
