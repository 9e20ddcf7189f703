"""Figures of the room compare."""

from typing import Any

OLDER: dict[str, Any] = {}
