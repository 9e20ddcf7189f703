"""The app's router: page list, titles and icons, nothing else.

Pages draw everything themselves through `mta_viz.ui.open_page`, because a page opened by its own
address can run before this file has.
"""

import streamlit as st

PAGES = [
    st.Page("pages/attention.py", title="Attention", icon=":material/grid_on:", default=True),
    st.Page("pages/kernels.py", title="Kernels", icon=":material/apps:"),
]

st.navigation(PAGES).run()
