"""Starting the app on a free port of this machine, and finding a chromium to look at it."""

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

ROOT = Path(__file__).parents[2]
APP = ROOT / "app.py"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
ARGUMENTS = ("--disable-gpu", "--no-sandbox", "--disable-background-networking")
HOW_TO = "The browser tests need a chromium: `apt-get install chromium` or `playwright install chromium`."


def find_chromium() -> str | None:
    """The lighter one without windows, that of BROWSER_PATH, or one on the PATH; None: playwright's own."""
    if named := shutil.which("chromium-headless-shell") or os.environ.get("BROWSER_PATH"):
        return named
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def free_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start_app(models: Path | None = None, script: Path = APP) -> tuple[subprocess.Popen, str]:
    """`streamlit run app.py`, or another script, on a free port of this machine: (process, address).

    The package is that beside an `app.py` (of another checkout, say), else this project's.
    """
    root = script.parent if script.name == APP.name else ROOT
    path = os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH"))))
    port, shared = free_port(), {"OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    environ = {**os.environ, **shared} | ({"MTA_VIZ_MODELS": str(models)} if models else {})
    command = [sys.executable, "-m", "streamlit", "run", str(script), "--server.port", str(port)]
    process = subprocess.Popen(
        command, cwd=root, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    return process, f"http://127.0.0.1:{port}"


@contextmanager
def running(models: Path | None = None, script: Path = APP) -> Iterator[str]:
    """The address of an app over a folder of models, which answers; it ends with the block."""
    process, address = start_app(models, script)
    try:
        wait_for(address, process)
        yield address
    finally:
        process.terminate()
        process.wait(20)


@contextmanager
def looking(size: tuple[int, int] = (1280, 1100)) -> Iterator["Page"]:
    """A page of a headless chromium, patient with slow machines; it closes with the block."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=list(ARGUMENTS))
        page = browser.new_page(viewport={"width": size[0], "height": size[1]})
        page.set_default_timeout(300_000)
        yield page
        browser.close()


def wait_for(address: str, process: subprocess.Popen, seconds: float = 60.0) -> None:
    """Until the server answers; raises RuntimeError when it ends or is silent too long."""
    stop = time.monotonic() + seconds
    while time.monotonic() < stop:
        if process.poll() is not None:
            raise RuntimeError(f"streamlit ended with {process.returncode}")
        try:
            urllib.request.urlopen(f"{address}/_stcore/health", timeout=1).read()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError(f"no answer from {address} within {seconds:.0f} s")
