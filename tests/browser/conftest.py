"""A running app for the browser tests."""

from contextlib import suppress

import pytest
from playwright.sync_api import Error, Page, expect

from tests.browser.serving import running
from tests.tiny_models import write_models

PAGES = pytest.StashKey[list[Page]]()
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


@pytest.fixture(scope="session")
def contexts(browser):
    """`contexts(1280, "light")`: one for all pages of a width and theme; it fetches scripts once."""
    kept = {}

    def context_of(width, theme):
        if (width, theme) not in kept:
            kept[width, theme] = new_context(browser, width, theme)
        return kept[width, theme]

    yield context_of
    for context in kept.values():
        context.close()


def new_context(browser, width, theme):
    """An empty browser, with a window this wide, that is spared what moves: drawing it takes a processor."""
    size = {"width": width, "height": 1100}
    return browser.new_context(
        viewport=size, color_scheme=theme, accept_downloads=True, reduced_motion="reduce"
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """A test that fails says what its pages showed then."""
    report = yield
    if report.when == "call" and report.failed:
        report.sections += [("page", words) for page in item.stash.get(PAGES, ()) for words in words_of(page)]
    return report


def words_of(page):
    """The address and text of a page that can still be asked, in a list."""
    with suppress(Error):
        return [page.url[:200] + "\n" + page.locator("body").inner_text(timeout=2000)[:3000]]
    return []


@pytest.fixture
def visit(request, browser, contexts, app_address):
    """`visit("/?ck=tiny-mta", width=1280, theme="light")`: a page; `empty`: in an empty browser."""
    pages, own = [], []
    request.node.stash[PAGES] = pages

    def go(path, width=1280, theme="light", address=app_address, empty=False):
        if empty:
            own.append(new_context(browser, width, theme))
        page = (own[-1] if empty else contexts(width, theme)).new_page()
        pages.append(page)
        page.set_default_timeout(60_000)
        page.goto(address + path)
        return page

    yield go
    for opened in (*pages, *own):
        opened.close()
