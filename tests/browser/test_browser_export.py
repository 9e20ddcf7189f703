"""What leaves the page in a real browser: the link on the clipboard, a figure's files, a session."""

import io
import re
import time
import zipfile
from urllib.parse import quote_plus

import pytest
from PIL import Image
from playwright.sync_api import expect
from pypdf import PdfReader

from mta_viz.exporting.provenance import read
from tests.browser.looking import WINDOW, settle, wait_for_map
from tests.browser.serving import running

pytestmark = pytest.mark.browser
PROMPT = "The cat <b>$sat$</b> on the mat. عربي 😀 The cat sat."
DATA = "() => [...document.querySelectorAll('.js-plotly-plot')].map(plot => JSON.stringify(plot.data))"


@pytest.fixture
def explorer(visit):
    page = visit(f"/attention?ck=tiny-mta&l=1&h=2&s=kq&p={quote_plus(PROMPT)}")
    wait_for_map(page, "L1 H2")
    page.get_by_text("Cells", exact=True).first.click()
    expect(page).to_have_url(re.compile("tab=Cells"))
    settle(page)
    return page


def test_the_link_on_the_clipboard_shows_the_same_in_a_fresh_browser(explorer, visit):
    explorer.context.grant_permissions(["clipboard-read", "clipboard-write"])
    explorer.get_by_role("button", name="Link").click()
    code = explorer.get_by_test_id("stCode").filter(has_text="tab=Cells").first
    code.hover()
    code.locator("button").click()
    link = explorer.evaluate("navigator.clipboard.readText()")
    assert "tab=Cells" in link
    explorer.keyboard.press("Escape")
    fresh = visit("/" + link.split("/", 3)[3])
    wait_for_map(fresh, "L1 H2")
    settle(fresh)
    assert fresh.evaluate(DATA) == explorer.evaluate(DATA)
    assert fresh.get_by_label("Prompt", exact=True).input_value() == PROMPT


def saved(page, button: str, place) -> bytes:
    with page.expect_download() as download:
        page.get_by_role("button", name=re.compile(button)).click()
    file = place / download.value.suggested_filename
    download.value.save_as(file)
    return file.read_bytes()


def test_a_figure_leaves_as_picture_and_zip_that_say_where_they_come_from(explorer, tmp_path):
    explorer.locator("[class*='st-key-save-attention-map'] button").first.click()
    dialog = explorer.get_by_role("dialog")
    dialog.locator("img").first.wait_for()
    png = saved(dialog.page, "^Save PNG", tmp_path)
    assert Image.open(io.BytesIO(png)).format == "PNG"
    said = read(next(tmp_path.glob("tiny-mta-L1-H2-kq*.png")))  # the part in view is in its name
    assert (said.run.prompt, said.figure, said.parameters["stage"]) == (PROMPT, "attention-map", "kq")
    dialog.get_by_role("radio", name="PDF").click()
    dialog.get_by_role("button", name="Save PDF").wait_for()
    start = time.perf_counter()
    pdf = saved(dialog.page, "^Save PDF", tmp_path)
    print(f"second export: {time.perf_counter() - start:.2f} s")
    assert "$" in PdfReader(io.BytesIO(pdf)).pages[0].extract_text()
    names = zipfile.ZipFile(io.BytesIO(saved(dialog.page, "^All of these", tmp_path))).namelist()
    assert sorted(name.rsplit(".")[-1] for name in names) == ["csv", "json", "pdf", "txt"]


def test_a_session_opens_again_in_an_empty_browser(explorer, visit, tmp_path):
    explorer.locator(".st-key-everything button").first.click()
    explorer.get_by_role("button", name="Make the file").click()
    explorer.locator(".st-key-everything-save button").wait_for()
    with explorer.expect_download() as download:
        explorer.locator(".st-key-everything-save button").click()
    download.value.save_as(tmp_path / "session.zip")
    fresh = visit("/kernels")
    fresh.locator(".js-plotly-plot").first.wait_for()
    settle(fresh)
    fresh.locator(".st-key-everything button").first.click()
    fresh.locator("[role=dialog] input[type=file]").set_input_files(tmp_path / "session.zip")
    wait_for_map(fresh, "L1 H2")
    settle(fresh)
    assert fresh.get_by_label("Prompt", exact=True).input_value() == PROMPT
    assert fresh.evaluate(DATA) == explorer.evaluate(DATA)
    query = re.compile(r"\?(.*)")
    parts = [set(query.search(page.url)[1].split("&")) for page in (fresh, explorer)]
    assert parts[0] == parts[1]


def test_the_part_of_a_map_that_is_seen_is_saved(explorer):
    explorer.locator(".mta-crops button[data-crop=window]").click()
    explorer.locator(".mta-map").focus()
    explorer.keyboard.press("+")
    seen = explorer.evaluate(WINDOW)
    explorer.wait_for_timeout(1000)  # until the server has it
    explorer.locator("[class*='st-key-save-attention-map'] button").first.click()
    (top, bottom), (left, right) = [(int(low), -int(-high // 1)) for low, high in (seen[:2], seen[2:])]
    words = f"Queries {top} to {bottom - 1}, keys {left} to {right - 1}."
    expect(explorer.get_by_role("dialog")).to_contain_text(words)


def test_a_button_whose_file_cannot_be_made_says_why_and_the_others_go_on(
    visit, models_folder, monkeypatch, tmp_path
):
    monkeypatch.setenv("BROWSER_PATH", "/no/chromium")
    with running(models_folder) as address:
        page = visit(f"/?ck=tiny-mta&l=1&h=2&s=kq&p={quote_plus(PROMPT)}", address=address)
        wait_for_map(page, "L1 H2")
        settle(page)
        page.locator("[class*='st-key-save-attention-map'] button").first.click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_role("button", name="Save PNG").click()
        expect(dialog).to_contain_text(re.compile("png could not be made: .*save as html"))
        page.wait_for_timeout(6000)  # Streamlit's own word of a failure is gone then
        expect(dialog).to_contain_text("could not be made")
        assert saved(page, "^Numbers", tmp_path).startswith(b"layer")
        expect(dialog).not_to_contain_text("could not be made")
