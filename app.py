"""The app's router: page list, titles and icons, nothing else.

Pages draw everything themselves through `mta_viz.ui.open_page`, because a page opened by its own
address can run before this file has.
"""

import streamlit as st

from mta_viz.ui.site import ICON, PAGES

pages = [st.Page(path, title=title, icon=icon) for path, (title, icon) in PAGES.items()]

# The browser tab's own icon, set first: a page's icon would be fetched for it from a host of fonts.
st.set_page_config(page_icon=ICON)
st.navigation(pages, position="hidden").run()
