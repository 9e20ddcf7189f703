"""Figures of the room kernels."""

from typing import Any

OLDER: dict[str, Any] = {}
