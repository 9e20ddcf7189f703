"""What a page imports before it draws."""

import subprocess
import sys

import pytest


def loaded_with(module, name):
    """Whether a fresh Python has `name` after importing `module`."""
    code = f"import sys, {module}; print({name!r} in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True
    )
    return done.stdout.strip() == "True"


def test_the_page_s_first_words_do_not_wait_for_torch():
    assert not loaded_with("mta_viz.ui.shell.page", "torch")


@pytest.mark.parametrize("name", ["pandas", "PIL.Image", "numpy"])
def test_plotly_meets_no_library_that_another_thread_is_importing(name):
    """It takes these from `sys.modules` as they are there: a half imported pandas failed the page."""
    assert loaded_with("mta_viz.ui.shell.preparing", name)
