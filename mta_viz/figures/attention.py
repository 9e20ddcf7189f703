"""Figures of the room attention."""

from typing import Any

OLDER: dict[str, Any] = {}
