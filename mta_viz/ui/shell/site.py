"""What the site is made of: its pages, and where its own files are. Imports only streamlit."""

from pathlib import Path

import streamlit as st

ASSETS = Path(__file__).parents[3] / "assets"
ICON = ASSETS / "icon.svg"
PAGES = {
    "pages/attention.py": ("Attention", ":material/grid_on:"),
    "pages/kernels.py": ("Kernels", ":material/apps:"),
    "pages/surgery.py": ("Surgery", ":material/healing:"),
    "pages/compare.py": ("Compare", ":material/compare:"),
    "pages/labs.py": ("Labs", ":material/science:"),
}


def draw_links() -> None:
    """Links to all pages, in the sidebar.

    Streamlit's own navigation lists files by their names when a page was opened by its address.
    """
    with st.sidebar:
        for path, (title, icon) in PAGES.items():
            st.page_link(path, label=title, icon=icon)
