"""Copies the app, its pages, its settings and the small assets into the package that is installed.

Everything else of the build is in pyproject.toml.
"""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
SITE = (
    "app.py", "serve.py", "requirements.txt", "pages", ".streamlit/config.toml", "assets/*.*", "assets/cards",
    "assets/blocks-n5-mta", "assets/blocks-n5-transformer",
)  # fmt: skip


class WithSite(build_py):
    """`build_py` that fills `mta_viz/site` as well; an editable install uses the project's folder."""

    def run(self) -> None:
        """Build, then copy."""
        super().run()
        if self.editable_mode:
            return
        target = Path(self.build_lib) / "mta_viz" / "site"
        shutil.rmtree(target, ignore_errors=True)  # what an older build left
        for source in (path for pattern in SITE for path in sorted(ROOT.glob(pattern))):
            place = target / source.relative_to(ROOT)
            place.parent.mkdir(parents=True, exist_ok=True)
            copy = shutil.copytree if source.is_dir() else shutil.copyfile
            copy(
                source,
                place,
                **({"ignore": shutil.ignore_patterns("__pycache__")} if source.is_dir() else {}),
            )


setup(cmdclass={"build_py": WithSite})
