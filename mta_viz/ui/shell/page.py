"""The site's pages, what each may draw from, how errors become messages, and the app's log.

The log is lines of JSON, each with the session it is of, where MTA_VIZ_LOG=json asks for that. Imports
nothing heavy.
"""

import hashlib
import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from mta_viz.errors import MtaVizError
from mta_viz.printed import printable
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.widgets import plain
from mta_viz.version import ASSETS

if TYPE_CHECKING:
    from mta_viz.ui.shell.cache import ModelKey

ICON = ASSETS / "icon.svg"
PAGES = {
    "pages/workspace.py": ("Workspace", ":material/grid_on:"),
    "pages/kernels.py": ("Kernels", ":material/apps:"),
    "pages/labs.py": ("Labs", ":material/science:"),
    "pages/train.py": ("Train", ":material/model_training:"),
    "pages/how.py": ("How it works", ":material/school:"),
}
WORKSPACE = next(iter(PAGES))
OLDER = ("Attention", "Surgery", "Compare")  # pages that the workspace took the place of
# The view and the tab of the inspector there, which other pages lead to.
VIEW, INSPECTOR = Setting("tab", "Next token"), Setting("inspector", "Why")
RESTS, BESIDE, TAPS, EDIT = "Rests on", "Beside", "Taps", "Edit"


def of_older(page: str, parameters: Mapping[str, str]) -> dict[str, str]:
    """What a link to a page of before asks of the workspace besides its parameters."""
    if page == "Compare":
        return {VIEW.name: BESIDE}
    if page == "Surgery" and parameters.get("surgery tab", "One kernel") == "One kernel":
        return {VIEW.name: TAPS, INSPECTOR.name: EDIT}
    return {VIEW.name: RESTS} if page == "Surgery" else {}


@dataclass(frozen=True)
class Page:
    """What a page may draw from. `trace` is None without a run; `empty` then says what to do.

    `key` is equal only for equal runs (or models, without a run): it keys caches and widgets.
    `model_key` is how work finds the model again. `model` is a HookedMTA, `trace` a Trace or None;
    naming these types would import the model's libraries before the first thing is on screen.
    """

    model: Any
    trace: Any
    key: str
    empty: str
    stale: bool
    numbering: int
    first_token: bool
    model_key: "ModelKey"


@contextmanager
def errors_as_messages() -> Iterator[None]:
    """Errors meant for the user as they are; others by their name, with the traceback in the log."""
    try:
        yield
    except MtaVizError as error:
        st.error(plain(str(error)))
    except Exception as error:
        logging.getLogger(__name__).exception("unexpected error in a page")
        words = f"The page failed with {type(error).__name__}: {printable(error)}. The log has the details."
        st.error(plain(words))


LOG = "MTA_VIZ_LOG"


class JsonLines(logging.Formatter):
    """One object a record; what visitors typed stands in strings and cannot begin a line."""

    def format(self, record: logging.LogRecord) -> str:
        """`time`, `level`, `session`, `logger`, `message`, and `error` where there is a traceback."""
        entry = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "session": _session(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["error"] = self.formatException(record.exc_info)
        return json.dumps(entry)


def _session() -> str | None:
    """A short digest of the session's id, which itself would open the session's files; None beside pages."""
    context = get_script_run_ctx(suppress_warning=True)
    return None if context is None else hashlib.sha256(context.session_id.encode()).hexdigest()[:12]


@cache
def set_up_log() -> None:
    """Once a process."""
    if os.environ.get(LOG) != "json":
        return
    handler, log = logging.StreamHandler(), logging.getLogger("mta_viz")
    handler.setFormatter(JsonLines())
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
