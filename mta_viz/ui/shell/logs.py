"""The app's log as lines of JSON, each with the session it is of, where MTA_VIZ_LOG=json asks for that."""

import hashlib
import json
import logging
import os
from datetime import UTC, datetime
from functools import cache

from streamlit.runtime.scriptrunner import get_script_run_ctx

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
def set_up() -> None:
    """Once a process."""
    if os.environ.get(LOG) != "json":
        return
    handler, log = logging.StreamHandler(), logging.getLogger("mta_viz")
    handler.setFormatter(JsonLines())
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
