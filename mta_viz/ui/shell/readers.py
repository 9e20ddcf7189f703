"""Who looks at a page: this session, or the person signed in; and whether they are still there."""

from dataclasses import dataclass

import streamlit as st
from streamlit import runtime
from streamlit.runtime.scriptrunner import get_script_run_ctx


@dataclass(frozen=True)
class Reader:
    """A session of a browser's tab; `name` is the address of who is signed in, with which tabs are theirs."""

    session: str = ""
    name: str = ""

    def owns(self, other: "Reader") -> bool:
        """Whether what belongs to `other` is this reader's."""
        return self.session == other.session or bool(self.name and self.name == other.name)


def current() -> Reader:
    """Of the page this is called from; outside of pages nobody."""
    context = get_script_run_ctx(suppress_warning=True)
    if context is None:
        return Reader()
    return Reader(context.session_id, str(st.user.get("email") or ""))


def is_here(reader: Reader) -> bool:
    """Whether its tab is connected; True where no server says."""
    if not reader.session or not runtime.exists():
        return True
    return bool(runtime.get_instance().is_active_session(reader.session))
