"""Where the app, its assets and the tested versions lie: in the project's folder, or in an installed package.

`setup.py` copies them into the package that is installed.
"""

from pathlib import Path

PACKAGE = Path(__file__).parent
INSTALLED = PACKAGE / "site"
HOME = INSTALLED if INSTALLED.is_dir() else PACKAGE.parent
APP, ASSETS, TESTED = HOME / "app.py", HOME / "assets", HOME / "requirements.txt"
