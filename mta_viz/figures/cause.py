"""Figures of the room cause."""

from typing import Any

OLDER: dict[str, Any] = {}
