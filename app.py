"""The app's router: page list, titles and icons, nothing else.

Pages draw everything themselves through `mta_viz.ui.shell.open_page`, because a page opened by its own
address can run before this file has.
"""

from functools import partial
from pathlib import Path

import streamlit as st

from mta_viz.ui.shell.page import ICON, OLDER, PAGES, WORKSPACE, of_older


def first_by_name() -> None:
    """`/workspace` leads to `/`: Streamlit has no address for the page that `/` shows, but links name it."""
    st.switch_page(WORKSPACE, query_params=dict(st.query_params))


def lead_on(older: str) -> None:
    """From the address of a page of before to the workspace, with all it says, and the view it names."""
    said = dict(st.query_params)
    st.switch_page(WORKSPACE, query_params=said | of_older(older, said))


pages = [
    # the address of the first leaves its name free
    st.Page(path, title=title, icon=icon, url_path="first" if path == WORKSPACE else None)
    for path, (title, icon) in PAGES.items()
]
pages += [st.Page(partial(lead_on, name), title=name, url_path=name.lower()) for name in OLDER]
pages.append(st.Page(first_by_name, url_path=Path(WORKSPACE).stem))

# The browser tab's own icon, set first: a page's icon would be fetched for it from a host of fonts.
st.set_page_config(page_icon=ICON)
st.navigation(pages, position="hidden").run()
