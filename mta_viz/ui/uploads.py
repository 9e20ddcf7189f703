"""Files handed over in the browser, kept in the temporary folder so that readers can open them."""

import hashlib
import tempfile
from pathlib import Path


def keep_upload(name: str, content: bytes) -> Path:
    """Where the uploaded bytes now lie, under their own file name; equal bytes share a place."""
    folder = Path(tempfile.gettempdir()) / f"mta-viz-{hashlib.sha256(content).hexdigest()[:16]}"
    folder.mkdir(exist_ok=True)
    file = folder / Path(name).name
    if not file.exists():
        file.write_bytes(content)
    return file
