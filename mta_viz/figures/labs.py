"""Figures of the room labs."""

from typing import Any

OLDER: dict[str, Any] = {}
