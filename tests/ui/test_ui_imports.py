"""The page's first words must not wait for the model's libraries."""

import subprocess
import sys


def test_opening_a_page_does_not_import_torch():
    code = "import sys, mta_viz.ui.shell.page; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"
