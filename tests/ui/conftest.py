"""The app over a folder of tiny models, without a browser."""

from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from mta_viz.ui.shell.state import View
from tests.tiny_models import write_models

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def models_folder(tmp_path_factory):
    """A few tiny models with random weights and kernels."""
    return write_models(tmp_path_factory.mktemp("models"))


@pytest.fixture
def open_app(models_folder, monkeypatch, tmp_path):
    """`open_app("tiny-mta", prompt="hi", page="pages/kernels.py")`: the page after its first run."""
    monkeypatch.setenv("MTA_VIZ_MODELS", str(models_folder))
    monkeypatch.setenv("MTA_VIZ_PROMPTS", str(tmp_path / "prompts"))

    def start(checkpoint=None, prompt=None, page="app.py", **view):
        app = AppTest.from_file(ROOT / "app.py", default_timeout=120)
        if page != "app.py":
            app.switch_page(page)  # runs the page without app.py, as its own address does
        app.session_state["view"] = View(checkpoint=checkpoint, **view)
        if prompt is not None:
            app.session_state["kept.prompt"] = app.session_state["kept.run"] = prompt
        return app.run()

    return start
