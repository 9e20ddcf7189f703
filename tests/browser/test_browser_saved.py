"""A run saved on the page and opened in another browser: without its checkpoint, with it, and damaged."""

import base64
import json

import pytest
import torch
from playwright.sync_api import expect
from safetensors.torch import save

from mta_viz.model.stages import Stage
from mta_viz.run.tracing import capture, load
from tests.browser.conftest import new_context
from tests.browser.looking import MAP, run_prompt, settle, wait_for_map

pytestmark = pytest.mark.browser
PROMPT = "Once <b>more</b>"
OPENED = ".st-key-chart-run-map .js-plotly-plot"
VALUES = """chart => JSON.stringify(
    document.querySelector(chart).data.find(one => one.type === 'heatmap' && one.z.dtype === 'f4').z)"""

DRAWN = """chart => document.querySelector(chart)?.data?.some(
    part => part.type === 'heatmap' && part.z.dtype === 'f4')"""
CELLS = f"""() => {{
    const {{ panels: [{{ values }}], header }} = document.querySelector('{MAP}').mtaView.store;
    return [...values].filter((_, at) => at % header.shape[1] <= Math.floor(at / header.shape[1]));
}}"""  # those of the large map, without the masked ones


@pytest.fixture(scope="module")
def run_file(browser, app_address, tmp_path_factory):
    """A run of tiny-mta with its raw scores, saved on the page; and what the page's map shows."""
    context = new_context(browser, 1280, "light")
    page = context.new_page()
    page.set_default_timeout(60_000)
    page.goto(f"{app_address}/attention?ck=tiny-mta&l=1&h=2&s=raw")
    wait_for_map(page, "L1 H2")
    run_prompt(page, PROMPT)
    settle(page)
    shown = page.evaluate(CELLS)
    page.get_by_role("button", name="Save run").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Maps to store").click()
    page.get_by_role("option", name="raw scores").click()
    page.keyboard.press("Escape")
    expect(dialog.get_by_label("Of layers")).to_be_enabled()  # the file is that of the choice now
    settle(page)
    with page.expect_download() as download:
        dialog.get_by_role("button", name="Save", exact=True).click()
    file = tmp_path_factory.mktemp("run") / download.value.suggested_filename
    download.value.save_as(file)
    context.close()
    return file, shown


@pytest.fixture
def opened(visit):
    """`opened("tiny-plain", file)`: the window of a fresh browser with this file in it."""

    def start(checkpoint, file):
        page = visit(f"/attention?ck={checkpoint}")
        settle(page)
        page.get_by_role("button", name="Open run").click()
        page.locator("[role=dialog] input[type=file]").set_input_files(file)
        return page

    return start


def choose(page, label, option):
    page.get_by_role("dialog").get_by_label(label).click()
    page.get_by_role("option", name=option, exact=True).click()
    settle(page)


def values(text) -> torch.Tensor:
    """The cells of a heatmap as plotly sends them."""
    sent = json.loads(text)
    rows, columns = map(int, sent["shape"].split(","))
    return torch.frombuffer(bytearray(base64.b64decode(sent["bdata"])), dtype=torch.float32).view(
        rows, columns
    )


def test_without_its_checkpoint_a_stored_map_is_the_one_the_page_showed(run_file, opened):
    file, shown = run_file
    page = opened("tiny-plain", file)
    page.locator(OPENED).wait_for()
    assert page.get_by_text("Without its checkpoint only the stored maps are here").is_visible()
    choose(page, "Layer", "L1")
    choose(page, "Head", "H2")
    expect(page.get_by_role("dialog")).to_contain_text("L1 H2")  # the map's caption, which comes behind it
    page.wait_for_function(DRAWN, arg=OPENED)
    cells = values(page.evaluate(VALUES, OPENED))
    assert cells[torch.ones_like(cells).tril().bool()].tolist() == shown


def test_with_its_checkpoint_a_map_that_is_not_stored_is_there(run_file, opened, models_folder):
    page = opened("tiny-mta", run_file[0])
    page.locator(OPENED).wait_for()
    choose(page, "Layer", "L1")
    choose(page, "Head", "H2")
    choose(page, "Stage", Stage.PATTERN.value.long)
    expect(page.get_by_role("dialog")).to_contain_text("L1 H2")
    wanted = capture(load(models_folder / "tiny-mta"), PROMPT).map(1, Stage.PATTERN, 2)
    kept = torch.ones_like(wanted).tril().bool()
    assert torch.allclose(values(page.evaluate(VALUES, OPENED))[kept], wanted[kept], atol=1e-6)


def test_a_damaged_and_a_foreign_file_are_refused_with_the_reason(run_file, opened, tmp_path):
    half, foreign = tmp_path / "half.safetensors", tmp_path / "foreign.safetensors"
    half.write_bytes(run_file[0].read_bytes()[:-100])
    foreign.write_bytes(save({"weights": torch.ones(3)}))
    page = opened("tiny-mta", half)
    said = page.get_by_role("dialog").get_by_test_id("stAlert")
    said.get_by_text("half.safetensors cannot be opened as a saved run").wait_for()
    assert "cut short, damaged" in said.inner_text()
    page.locator("[role=dialog] input[type=file]").set_input_files(foreign)
    said.get_by_text("foreign.safetensors cannot be opened as a saved run").wait_for()
    assert "does not say what run it is of" in said.inner_text()
    assert page.locator(OPENED).count() == 0
