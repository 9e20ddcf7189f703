"""The linked map and text in a real browser: they answer the pointer; the server hears of choices alone."""

import re
from itertools import pairwise
from urllib.parse import quote_plus

import pytest
from playwright.sync_api import expect

from mta_viz.model.stages import Stage
from mta_viz.run.tracing import capture, load
from tests.browser.looking import MAP, PROMPT, WINDOW, cell_at, settle, token, wait_for_map

pytestmark = pytest.mark.browser
ODD = "a\u202eb \u0001 é 😀 c"
PLACES = f"""() => [...document.querySelectorAll('{MAP} .mta-text [data-at]')]
    .map(token => token.getBoundingClientRect()).map(box => [box.top, box.left])"""


def received(page, data):
    """Keep a message of the server's."""
    page.received.append(data.encode() if isinstance(data, str) else data)


@pytest.fixture
def linked(visit, app_address):
    """`linked(prompt)`: the Attention page at layer 1, head 0; what it received in `received`."""

    def go(prompt=PROMPT, more=""):
        page = visit("about:blank", address="")
        page.received = []
        page.on("websocket", lambda socket: socket.on("framereceived", lambda data: received(page, data)))
        page.goto(f"{app_address}/?ck=tiny-mta&l=1&h=0&s=kq&p={quote_plus(prompt)}{more}")
        wait_for_map(page, "L1 H0")
        settle(page)
        return page

    return go


def test_a_pointer_on_a_word_lights_its_cell_and_reads_it(linked, models_folder):
    page = linked(more="&q=20&k=3")
    token(page, 7).hover()
    words = page.locator(f"{MAP} .mta-says")
    expect(words).to_contain_text("query 20 ")
    expect(words).to_contain_text("key 7 ")
    value = float(capture(load(models_folder / "tiny-mta"), PROMPT).map(1, Stage.KQ, 0)[20, 7])
    assert float(re.search(r"conv: ([-+.\de]+) \(score\)", words.text_content())[1]) == float(f"{value:.4g}")
    assert "mta-hover" in token(page, 7).get_attribute("class")
    page.mouse.move(*cell_at(page, 15, 2))
    assert [at for at in range(24) if "mta-hover" in (token(page, at).get_attribute("class") or "")] == [
        2,
        15,
    ]
    page.mouse.move(*cell_at(page, 2, 15))
    expect(words).to_contain_text("masked: key 15 comes after query 2")


def test_a_word_chooses_the_query_and_with_shift_the_key(linked):
    page = linked(more="&q=20&k=3")
    token(page, 9).click()
    expect(page).to_have_url(re.compile("q=9&k=3"))
    expect(page.get_by_text('query 9 "').first).to_be_visible()
    token(page, 6).click(modifiers=["Shift"])
    expect(page).to_have_url(re.compile("q=9&k=6"))
    page.get_by_role("button", name="to the key").click()
    expect(page).to_have_url(re.compile("text.side=to.the.key"))
    expect(token(page, 5)).to_have_class(re.compile("mta-masked"))  # query 5 never sees key 6
    settle(page)
    fresh = linked(more="&" + page.url.split("&p=")[0].split("?")[1] + "&q=9&k=6&text+side=to+the+key")
    expect(fresh.get_by_role("button", name="to the key")).to_have_attribute("aria-pressed", "true")


def test_a_choice_sends_the_sum_alone(linked):
    page = linked(more="&q=20&k=3")
    view = next(data for data in page.received if b"mta-linked" in data)
    assert len(view) > 10_000  # else Streamlit would send it at every rerun
    before = len(page.received)
    page.mouse.click(*cell_at(page, 12, 5))
    expect(page).to_have_url(re.compile("q=12&k=5"))
    settle(page)
    sent = page.received[before:]
    assert not [data for data in sent if b"mta-linked" in data]
    assert sum(map(len, sent)) < 40_000


def test_arrows_move_the_cell_of_a_map_in_focus_and_leave_the_head(linked):
    page = linked(more="&q=20&k=3")
    page.locator(f"{MAP} .mta-map").focus()
    for key in ("ArrowUp", "ArrowUp", "ArrowRight"):
        page.keyboard.press(key)
    expect(page).to_have_url(re.compile("l=1&h=0.*q=18&k=4"))
    expect(page.locator(f"{MAP} .mta-map")).to_have_attribute("aria-label", re.compile("query.*18.*key.*4"))
    page.locator(f"{MAP} .mta-text").focus()
    page.keyboard.press("Shift+ArrowLeft")
    page.keyboard.press("ArrowRight")
    expect(page).to_have_url(re.compile("l=1&h=0.*q=19&k=3"))


def drag(page, start, end):
    x, y = cell_at(page, *start)
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(*cell_at(page, *end), steps=5)
    page.mouse.up()


def test_the_window_stays_where_it_is_until_the_cell_is_outside(linked):
    page = linked(more="&q=20&k=3")
    drag(page, (10, 2), (17, 9))
    zoomed = page.evaluate(WINDOW)
    assert zoomed == [10, 18, 2, 10] and "q=20" in page.url
    page.mouse.click(*cell_at(page, 12, 5))
    expect(page).to_have_url(re.compile("q=12&k=5"))
    page.get_by_role("radio", name="raw", exact=True).click()
    wait_for_map(page, "raw scores")
    settle(page)
    assert page.evaluate(WINDOW) == zoomed
    page.get_by_label("Find text").fill("mat")
    page.get_by_label("Find text").press("Enter")
    expect(page.locator(f"{MAP} .mta-mark")).to_have_count(3)
    assert page.evaluate(WINDOW) == zoomed
    page.get_by_role("button", name="Show as query").click()
    expect(page).to_have_url(re.compile("q=22"))
    settle(page)
    top, bottom, left, right = page.evaluate(WINDOW)
    assert top <= 22 < bottom and (bottom - top, right - left) == (8, 8)
    page.locator(f"{MAP} .mta-map").dblclick(position={"x": 300, "y": 300})
    assert page.evaluate(WINDOW) == [0, 24, 0, 24]


def test_a_control_character_turns_nothing_round_and_parts_say_of_what(linked):
    page = linked(ODD)
    text = page.locator(f"{MAP} .mta-text").text_content()
    assert not re.search("[\u0001\u202e]", text)
    places = page.evaluate(PLACES)
    assert len(places) == 1 + len(ODD.encode())
    for (top, left), (next_top, next_left) in pairwise(places):  # parts of characters are smaller
        assert next_left > left or next_top > top + 10
    token(page, 3).hover()
    expect(page.locator(f"{MAP} .mta-says")).to_contain_text("(part 2 of 3 of <U+202E>)")


def test_another_theme_is_drawn_at_once_and_the_text_stays_on_white(linked):
    page = linked()
    picture = f"() => document.querySelector('{MAP} .mta-cells').toDataURL()"
    light = page.evaluate(picture)
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(f"light => ({picture})() !== light", arg=light)
    white = "rgb(255, 255, 255)"
    expect(page.locator(f"{MAP} .mta-text")).to_have_css("background-color", white)
    assert page.locator(MAP).count() == 1
