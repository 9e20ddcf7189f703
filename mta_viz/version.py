"""The version, which files and commands carry, and where the app, its assets and the tested versions lie.

That is in the project's folder, or in an installed package, into which `setup.py` copies them.
"""

from pathlib import Path

VERSION = "0.2.0"
PACKAGE = Path(__file__).parent
INSTALLED = PACKAGE / "site"
HOME = INSTALLED if INSTALLED.is_dir() else PACKAGE.parent
APP, ASSETS, TESTED = HOME / "app.py", HOME / "assets", HOME / "requirements.txt"
