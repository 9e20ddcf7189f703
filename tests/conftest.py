"""What all tests share: one torch thread (tiny models crawl with more), shapes, golden fixtures."""

import os
import signal
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import hypothesis
import jaxtyping
import pytest
import torch
from streamlit.components.v2 import manifest_scanner

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT.parent / "shared" / "golden"
# Where arrays are made, the shapes in signatures are checked. Elsewhere the same functions run again for
# other reasons, and a small model takes twice as long with every call checked.
SHAPED = {"analysis", "model", "run", "plots", "tasks", "training"}
SHAPED |= {"test_notebook_api.py", "test_figures_kernels.py", "test_named_attention.py", "test_shapes.py"}

torch.set_num_threads(1)
hypothesis.settings.register_profile("any machine", deadline=None)  # a busy one is no fault
hypothesis.settings.load_profile("any machine")
# Every page under test would read what all installed packages say of themselves.
manifest_scanner.scan_component_manifests = cache(manifest_scanner.scan_component_manifests)


def with_shapes() -> list[str]:
    """The modules of the package whose signatures say shapes."""
    files = [path for path in (ROOT / "mta_viz").rglob("*.py") if "jaxtyping" in path.read_text("utf-8")]
    return [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in files
    ]


jaxtyping.install_import_hook(with_shapes(), "beartype.beartype")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Check shapes, or not, from here on: fixtures of this test as well."""
    is_checked = SHAPED & set(item.path.relative_to(ROOT / "tests").parts[:2])
    jaxtyping.config.update("jaxtyping_disable", not is_checked)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what this machine lacks: a GPU, or the golden fixtures outside the project.

    With CI set and ../shared here, fixtures that are missing from it are a fault, and fail. Browser tests
    come first: they mostly wait, and beside them the others use the processors.
    """
    may_lack_golden = not (os.environ.get("CI") and GOLDEN.parent.is_dir())
    no_gpu = pytest.mark.skip(reason="no CUDA device")
    no_golden = pytest.mark.skip(reason="../shared/golden is not here")
    for item in items:
        if "gpu" in item.keywords and not torch.cuda.is_available():
            item.add_marker(no_gpu)
        if "golden" in item.keywords and not GOLDEN.is_dir() and may_lack_golden:
            item.add_marker(no_golden)
    items.sort(key=lambda item: "browser" not in item.keywords)


@pytest.fixture(scope="session")
def golden() -> Path:
    """The folder of reference checkpoints; use with `@pytest.mark.golden`."""
    if not GOLDEN.is_dir():
        pytest.fail("../shared is here, ../shared/golden is not", pytrace=False)
    return GOLDEN


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tokenizer files given in tests, and models made in them, are not those of whoever runs them."""
    os.environ["MTA_VIZ_TOKENIZERS"] = str(tmp_path_factory.mktemp("given"))
    os.environ["XDG_DATA_HOME"] = str(tmp_path_factory.mktemp("made"))


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C acts, here and in processes started here, also where the tests were started with it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def browser():
    """A headless chromium, one for all tests. Where none is found they fail, and are not skipped."""
    from playwright.sync_api import Error, expect, sync_playwright

    from tests.browser.serving import ARGUMENTS, HOW_TO, find_chromium

    expect.set_options(timeout=60_000)

    with sync_playwright() as playwright:
        try:
            chromium = playwright.chromium.launch(executable_path=find_chromium(), args=list(ARGUMENTS))
        except Error as error:
            pytest.fail(f"{HOW_TO} {error}", pytrace=False)
        yield chromium
        chromium.close()
