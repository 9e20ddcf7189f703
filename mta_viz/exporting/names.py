"""File names any file system takes, made from what the user sees."""

import re

MAX_STEM = 100
# Names Windows keeps for devices, whatever the suffix.
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)


def file_name(*parts: object, suffix: str) -> str:
    """`file_name("blocks", "L2 H1", "kq'", suffix="png")` -> `blocks-L2-H1-kq.png`.

    Letters a-z, digits, `.`, `_` and `-` only; never empty, hidden, a device's name or over 100
    characters before the suffix.
    """
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join(str(part) for part in parts))
    stem = re.sub(r"-{2,}", "-", stem)[:MAX_STEM].strip("-.")
    if not stem or _RESERVED.fullmatch(stem):
        stem = f"mta-viz-{stem}".rstrip("-")
    return f"{stem}.{suffix}"
