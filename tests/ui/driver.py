"""Pages as a visitor opens them: by an address, without a browser; and what they then show.

A page is opened by query parameters and driven by its widgets. Tests read what it shows; where they must look
at the session, it is through `session_of`, never by a key of Streamlit's.
"""

import json
import re
import time
from pathlib import Path
from typing import Any, TypeVar

from streamlit.testing.v1 import AppTest

from mta_viz.ui.shell.state import Selection, Session, url_from_selection

ROOT = Path(__file__).parents[2]
P = TypeVar("P")
MESSAGES = ("error", "warning", "info", "caption", "text", "code", "markdown")


def app_at(page: str = "app.py", **parameters: str) -> AppTest:
    """The page at an address, not run yet: `app_at("pages/labs.py", ck="tiny-mta", lab="Text")`."""
    app = AppTest.from_file(ROOT / "app.py", default_timeout=120)
    if page.startswith("pages/"):
        app.switch_page(page)  # runs the page without app.py, as its own address does
    for name, value in parameters.items():
        app.query_params[name] = value
    return app


def address_of(
    checkpoint: str | None = None,
    prompt: str | tuple[int, ...] | None = None,
    settings: dict[str, str] | None = None,
    **selection: Any,
) -> dict[str, str]:
    """Query parameters of a selection, a prompt (at most 1,000 characters) and settings by their names."""
    address = url_from_selection(Selection(checkpoint=checkpoint, **selection)) | (settings or {})
    if isinstance(prompt, tuple):
        address["ids"] = ",".join(map(str, prompt))
    elif prompt:
        address["p"] = prompt
    return address


def session_of(app: AppTest) -> Session:
    """What the visitor's session holds."""
    return app.session_state["session"]


def part_of(app: AppTest, kind: type[P]) -> P:
    """A room's own part of it, with its defaults where the page made none."""
    return session_of(app).parts.get(kind) or kind()


def view_of(app: AppTest) -> dict[str, str]:
    """The page's own address."""
    return {name: "".join(value) for name, value in app.query_params.items()}


def said(app: AppTest) -> str:
    """Every message and line of text on the page, with what stands behind a line's sign."""
    shown = [element for kind in MESSAGES for element in app.get(kind)]
    behind = [element.proto.help for element in app.get("caption")]
    words = "\n".join([*(element.value for element in shown), *behind])
    return words.replace("\\", "")  # how markup is escaped is not what these tests are about


def html(app: AppTest) -> list[str]:
    """The pieces of a page written as HTML."""
    return [element.proto.body for element in app.get("html")]


def charts(app: AppTest) -> list[dict[str, Any]]:
    """The figures on the page, as plotly's JSON."""
    return [json.loads(element.proto.spec) for element in app.get("plotly_chart")]


def fine(app: AppTest) -> None:
    """Neither an exception nor an error message."""
    assert not app.exception, app.exception[0].message
    assert not app.error, app.error[0].value


def borrowed(widgets: Any, name: str) -> Any:
    """The widget of a setting among `app.selectbox` or the like, whatever values it was given meanwhile."""
    turns = re.compile(rf"widget\.{re.escape(name)}(\.\d+)?")
    return next(widget for widget in widgets if turns.fullmatch(widget.key or ""))


def run_through(app: AppTest, name: str, seconds: float = 60.0) -> AppTest:
    """Rerun the page until the work of this name is through: its Stop is gone."""
    end = time.monotonic() + seconds
    while any(button.key == f"stop.{name}" for button in app.run().button):
        assert time.monotonic() < end, f"the work {name} goes on and on: {said(app)[-2000:]}"
        time.sleep(0.3)  # each run of the page costs the work its time
    return app


def run_until(app: AppTest, words: str, seconds: float = 30.0) -> AppTest:
    """Rerun the page, as its fragments do in a browser, until it says `words`."""
    end = time.monotonic() + seconds
    while words not in said(app.run()):
        assert time.monotonic() < end, f"the page never said {words!r}: {said(app)[-2000:]}"
        time.sleep(0.3)  # each run of the page costs the work its time
    return app
