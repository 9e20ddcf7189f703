"""The app over a folder of tiny models, without a browser."""

import pytest

from tests.tiny_models import write_models
from tests.ui.driver import address_of, app_at


@pytest.fixture(scope="session")
def models_folder(tmp_path_factory):
    """A few tiny models with random weights and kernels."""
    return write_models(tmp_path_factory.mktemp("models"))


@pytest.fixture
def open_app(models_folder, monkeypatch, tmp_path):
    """`open_app("tiny-mta", "hi", PAGE, {"part": "One layer"}, layer=1)`: opened by its address."""
    monkeypatch.setenv("MTA_VIZ_MODELS", str(models_folder))
    monkeypatch.setenv("MTA_VIZ_PROMPTS", str(tmp_path / "prompts"))

    def start(checkpoint=None, prompt=None, page="app.py", settings=None, **selection):
        return app_at(page, **address_of(checkpoint, prompt, settings, **selection)).run()

    return start
