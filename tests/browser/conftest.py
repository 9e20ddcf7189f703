"""A running app for the browser tests."""

import pytest
from playwright.sync_api import expect

from tests.browser.serving import running
from tests.tiny_models import write_models

expect.set_options(timeout=30_000)  # a loaded machine draws late, and the address follows the drawing


@pytest.fixture(scope="session")
def models_folder(tmp_path_factory):
    """A few tiny models with random weights and kernels."""
    return write_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def app_address(models_folder):
    """The address of an app over `models_folder`."""
    with running(models_folder) as address:
        yield address


@pytest.fixture
def visit(browser, app_address):
    """`visit("/?ck=tiny-mta", width=1280, theme="light")`: a page."""
    contexts = []

    def go(path, width=1280, theme="light", address=app_address):
        size = {"width": width, "height": 1100}
        context = browser.new_context(viewport=size, color_scheme=theme, accept_downloads=True)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(180_000)
        page.goto(address + path)
        return page

    yield go
    for context in contexts:
        context.close()
