"""The app's router: page list, titles and icons, nothing else.

Pages draw everything themselves through `mta_viz.ui.open_page`, because a page opened by its own
address can run before this file has.
"""

from pathlib import Path

import streamlit as st

PAGES = [
    st.Page("pages/attention.py", title="Attention", icon=":material/grid_on:", default=True),
    st.Page("pages/kernels.py", title="Kernels", icon=":material/apps:"),
]

# The browser tab's own icon, set first: a page's icon would be fetched for it from a host of fonts.
st.set_page_config(page_icon=Path(__file__).parent / "assets" / "icon.svg")
st.navigation(PAGES).run()
