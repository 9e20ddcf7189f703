"""What a page imports before it draws."""

import subprocess
import sys


def loaded_with(module, *names, then="pass"):
    """Those of `names` that a fresh Python has after importing `module` and what it does `then`."""
    code = f"import sys, {module}; {then}; print(*sys.modules.keys() & {set(names)!r})"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_the_page_s_first_words_do_not_wait_for_torch():
    assert loaded_with("mta_viz.ui.shell.page", "torch") == set()


def test_plotly_meets_no_library_that_another_thread_is_importing():
    """It takes these from `sys.modules` as they are there: a half imported pandas failed the page."""
    taken = {"PIL.Image", "numpy"}
    assert loaded_with("mta_viz.ui.shell.preparing", *taken, "pandas") == taken  # a second before the maps
    drawn = "mta_viz.plots.parts.Parts((9, 9), {}).figure()"
    assert loaded_with("mta_viz.plots.parts", "pandas", then=drawn) == {"pandas"}


def test_an_interval_waits_for_no_library_of_statistics():
    interval = "mta_viz.tasks.intervals.accuracy_interval(3, 9); mta_viz.tasks.intervals.median_rank(9)"
    assert loaded_with("mta_viz.tasks.intervals", "scipy.stats", then=interval) == set()
