"""A command's answer as JSON text, the same on the screen and in a file. Imports nothing heavy."""

import json
import math
import re
from collections.abc import Mapping
from typing import Any


def json_text(answer: Mapping[str, Any]) -> str:
    """Indented, lists of numbers on one line (no JSON string holds a line break); NaN and inf are null."""
    text = json.dumps(_finite(answer), indent=2, allow_nan=False)
    return re.sub(r'\[\n[^][{}"]*\]', lambda numbers: "".join(numbers[0].split()).replace(",", ", "), text)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
