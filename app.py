"""The app's router: page list, titles and icons, nothing else.

Pages draw everything themselves through `mta_viz.ui.shell.open_page`, because a page opened by its own
address can run before this file has.
"""

from pathlib import Path

import streamlit as st

from mta_viz.ui.shell.page import ICON, OLDER, PAGES, WORKSPACE


def first_by_name() -> None:
    """`/workspace` leads to `/`: Streamlit has no address for the page that `/` shows, but links name it."""
    st.switch_page(WORKSPACE, query_params=dict(st.query_params))


pages = [
    # the address of the first leaves its name free
    st.Page(path, title=title, icon=icon, url_path="first" if path == WORKSPACE else None)
    for path, (title, icon) in PAGES.items()
]
# files: before this script has run once, Streamlit knows of no other addresses
pages += [st.Page(f"pages/{name.lower()}.py") for name in OLDER]
pages.append(st.Page(first_by_name, url_path=Path(WORKSPACE).stem))

# The browser tab's own icon, set first: a page's icon would be fetched for it from a host of fonts.
st.set_page_config(page_icon=ICON)
st.navigation(pages, position="hidden").run()
