"""What a page imports before it draws."""

import subprocess
import sys


def loaded_with(module, *names):
    """Those of `names` that a fresh Python has after importing `module`."""
    code = f"import sys, {module}; print(*sys.modules.keys() & {set(names)!r})"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_the_page_s_first_words_do_not_wait_for_torch():
    assert loaded_with("mta_viz.ui.shell.page", "torch") == set()


def test_plotly_meets_no_library_that_another_thread_is_importing():
    """It takes these from `sys.modules` as they are there: a half imported pandas failed the page."""
    asked = {"pandas", "PIL.Image", "numpy"}
    assert loaded_with("mta_viz.ui.shell.preparing", *asked) == asked
