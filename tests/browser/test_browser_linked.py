"""The linked maps and text in a real browser: they answer the pointer; the server hears of choices alone."""

import re
from itertools import pairwise
from pathlib import Path
from urllib.parse import quote_plus

import pytest
from playwright.sync_api import expect

from mta_viz.model.stages import Stage
from mta_viz.run.tracing import capture, load
from tests.browser.looking import MAP, PROMPT, TEXT, WINDOW, cell_at, settle, token, wait_for_map
from tests.browser.serving import running

pytestmark = pytest.mark.browser
ODD = "a\u202eb \u0001 é 😀 c"
NEEDLES = "The magic number of Oslo is 12. The magic number of Rome is 34. The magic number of Oslo is"
PLACES = f"""() => [...document.querySelectorAll('{TEXT} [data-at]')]
    .map(token => token.getBoundingClientRect()).map(box => [box.top, box.left])"""
# What is drawn over the cells around a place of the screen, as "r,g,b" of the dots.
DRAWN = f"""([x, y]) => {{
    const canvas = document.querySelector('{MAP} .mta-over'), box = canvas.getBoundingClientRect();
    const dots = canvas.width / box.width, pen = canvas.getContext('2d');
    const [left, top] = [x - box.left - 4, y - box.top - 4].map(side => side * dots);
    const {{ data }} = pen.getImageData(left, top, 8 * dots, 8 * dots);
    const seen = [];
    for (let at = 0; at < data.length; at += 4)
        if (data[at + 3] > 250) seen.push([...data.slice(at, at + 3)].join());
    return seen;
}}"""
HALF = 4  # of the height of a label's letters, in pixels
# Painted anew: the ground under each label laid over others, and the middles of these; both with the line
# they stand in: a map's rows, or its columns.
LABELS = f"""() => {{
    const view = document.querySelector('{MAP}').mtaView, covers = [], labels = [];
    const pen = CanvasRenderingContext2D.prototype, {{ fillText, fillRect }} = pen, dots = devicePixelRatio;
    const seen = (list, keep) => function (...given) {{
        const {{ b, c, d, e, f }} = this.getTransform(), rows = b === 0;
        const line = rows ? 'rows' : 'columns';
        if (keep(this, given)) list.push([line, rows ? f / dots : e / dots, (rows ? d : c) / dots, given]);
        return (list === labels ? fillText : fillRect).apply(this, given);
    }};
    const over = pen => pen.canvas.classList.contains('mta-over');
    pen.fillText = seen(labels, (pen, [text, x, y]) => !over(pen) && x === 0 && y === 0);
    pen.fillRect = seen(covers, (pen, [x]) => over(pen) && x < -30);
    view.draw();
    Object.assign(pen, {{ fillText, fillRect }});
    return [
        covers.map(([line, at, way, [x, y, wide, high]]) => [line, [at + way * y, at + way * (y + high)]]),
        labels.map(([line, at]) => [line, at])
    ];
}}"""
KERNEL_WINDOW = "179,71,0"
VALUES = f"{MAP} .mta-panel:visible output"


@pytest.fixture(scope="module")
def address(models_folder):
    """A page of the text and maps alone."""
    with running(models_folder, Path(__file__).parent / "linked_page.py") as address:
        yield address


@pytest.fixture
def linked(visit, address):
    """`linked(prompt)`: layer 1, head 0, before and after its kernel; what came is in `received`."""

    def go(prompt=PROMPT, more=""):
        page = visit("about:blank", address="")
        page.received = []
        keep = lambda data: page.received.append(data.encode() if isinstance(data, str) else data)  # noqa: E731
        page.on("websocket", lambda socket: socket.on("framereceived", keep))
        page.goto(f"{address}/?p={quote_plus(prompt)}{more}")
        wait_for_map(page, "L1 H0")
        settle(page)
        return page

    return go


def value_in(words):
    return float(re.search(r"([-+.\de]+) \(score\)", words)[1])


def test_a_pointer_lights_words_and_cells_and_reads_every_map(linked, models_folder):
    page = linked(more="&q=20&k=3")
    token(page, 7).hover()
    words = page.locator(f"{TEXT} .mta-says")
    expect(words).to_contain_text("query 20 ")
    expect(words).to_contain_text("key 7 ")
    trace = capture(load(models_folder / "tiny-mta"), PROMPT)
    before, after = (float(trace.map(1, stage, 0)[20, 7]) for stage in (Stage.RAW, Stage.KQ))
    assert value_in(words.text_content()) == float(f"{after:.4g}")
    assert [float(text) for text in page.locator(VALUES).all_text_contents()[:2]] == [
        float(f"{before:.4g}"),
        float(f"{after:.4g}"),
    ]
    assert "mta-hover" in token(page, 7).get_attribute("class")
    page.mouse.move(*cell_at(page, 15, 2, panel=1))
    lit = [at for at in range(24) if "mta-hover" in (token(page, at).get_attribute("class") or "")]
    assert lit == [2, 15]
    page.mouse.move(*cell_at(page, 2, 15))
    expect(words).to_contain_text("masked: key 15 comes after query 2")


def test_what_the_kernel_reads_is_outlined_before_it_while_the_pointer_is_after_it(linked):
    page = linked(more="&q=5&k=3")
    left, top = cell_at(page, 10, 15, panel=0)
    right, _ = cell_at(page, 10, 16, panel=0)
    edge = [left - (right - left) / 2, top]  # of the 6 x 11 window whose own cell is (15, 20): 10..15, 15..25
    page.mouse.move(*cell_at(page, 15, 20, panel=1))
    assert KERNEL_WINDOW in page.evaluate(DRAWN, edge)
    page.mouse.move(*cell_at(page, 15, 20, panel=0))
    assert KERNEL_WINDOW not in page.evaluate(DRAWN, edge)
    kernel = page.locator(f"{MAP} .mta-panel:visible").last
    expect(kernel).to_contain_text("own tap")


def test_crops_are_one_click_apart_and_the_same_in_every_map(linked):
    page = linked(NEEDLES)
    needle, question = NEEDLES.index("12.") + 3, NEEDLES.rindex("The magic") + 1  # BOS is token 0
    assert page.evaluate(WINDOW) == [question, len(NEEDLES) + 1, 1, needle + 1]
    page.get_by_role("button", name="whole", exact=True).click()
    assert page.evaluate(WINDOW) == [0, len(NEEDLES) + 1] * 2
    page.mouse.click(*cell_at(page, 50, 30, panel=1))
    page.get_by_role("button", name="window", exact=True).click()
    top, bottom, left, right = page.evaluate(WINDOW)
    assert top <= 50 < bottom and left <= 30 < right and (bottom - top, right - left) == (24, 24)
    page.get_by_role("button", name="question x needle").click()
    assert page.evaluate(WINDOW)[0] == question
    rows = [cell_at(page, question, 2, panel=panel)[1] for panel in (0, 1)]
    assert rows[0] == rows[1]


def test_a_word_chooses_the_query_and_with_shift_the_key(linked):
    page = linked(more="&q=20&k=3&parts=3")
    token(page, 9).click()
    expect(page).to_have_url(re.compile("q=9&k=3"))
    token(page, 6).click(modifiers=["Shift"])
    expect(page).to_have_url(re.compile("q=9&k=6"))
    page.get_by_role("button", name="to the key").click()
    expect(page).to_have_url(re.compile("side=to.the.key"))
    expect(token(page, 5)).to_have_class(re.compile("mta-masked"))  # query 5 never sees key 6
    colored = token(page, 8).evaluate("token => token.style.background")
    page.get_by_role("button", name="difference").click()
    expect(page.locator(f"{TEXT} .mta-title")).to_contain_text("kq minus raw")
    assert token(page, 8).evaluate("token => token.style.background") != colored
    settle(page)
    fresh = linked(more="&q=9&k=6&side=to+the+key")
    expect(fresh.get_by_role("button", name="to the key")).to_have_attribute("aria-pressed", "true")


def test_a_choice_sends_neither_the_cells_nor_the_view_again(linked):
    page = linked(more="&q=20&k=3")
    (cells,) = [data for data in page.received if b'"palettes"' in data]  # for the text and the maps
    assert len(cells) > 10_000  # else Streamlit would send it at every rerun
    before = len(page.received)
    page.mouse.click(*cell_at(page, 12, 5))
    expect(page).to_have_url(re.compile("q=12&k=5"))
    settle(page)
    sent = page.received[before:]
    assert not [data for data in sent if b"mta-linked" in data] and sum(map(len, sent)) < 5_000


def test_arrows_move_the_cell_of_a_map_in_focus(linked):
    page = linked(more="&q=20&k=3")
    page.locator(f"{MAP} .mta-map").focus()
    for key in ("ArrowUp", "ArrowUp", "ArrowRight"):
        page.keyboard.press(key)
    expect(page).to_have_url(re.compile("q=18&k=4"))
    expect(page.locator(f"{MAP} .mta-map")).to_have_attribute("aria-label", re.compile("query.*18.*key.*4"))
    page.locator(f"{TEXT} .mta-text").focus()
    page.keyboard.press("Shift+ArrowLeft")
    page.keyboard.press("ArrowRight")
    expect(page).to_have_url(re.compile("q=19&k=3"))


def drag(page, start, end):
    x, y = cell_at(page, *start)
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(*cell_at(page, *end), steps=5)
    page.mouse.up()


def test_the_crop_stays_where_it_is_until_the_cell_is_outside(linked):
    page = linked(more="&q=20&k=3")
    drag(page, (10, 2), (17, 9))
    zoomed = page.evaluate(WINDOW)
    assert zoomed == [10, 18, 2, 10] and "q=20" in page.url
    page.mouse.click(*cell_at(page, 12, 5))
    expect(page).to_have_url(re.compile("q=12&k=5"))
    settle(page)
    assert page.evaluate(WINDOW) == zoomed
    token(page, 22).click()
    expect(page).to_have_url(re.compile("q=22"))
    settle(page)
    top, bottom, left, right = page.evaluate(WINDOW)
    assert top <= 22 < bottom and (bottom - top, right - left) == (8, 8)
    page.mouse.dblclick(*cell_at(page, 22, 5))
    assert page.evaluate(WINDOW) == [0, 24, 0, 24]


def test_a_control_character_turns_nothing_round_and_parts_say_of_what(linked):
    page = linked(ODD)
    text = page.locator(f"{TEXT} .mta-text").text_content()
    assert not re.search("[\u0001\u202e]", text)
    places = page.evaluate(PLACES)
    assert len(places) == 1 + len(ODD.encode())
    for (top, left), (next_top, next_left) in pairwise(places):  # parts of characters are smaller
        assert next_left > left or next_top > top + 10
    token(page, 3).hover()
    expect(page.locator(f"{TEXT} .mta-says")).to_contain_text("(part 2 of 3 of <U+202E>)")


def test_another_theme_is_drawn_at_once_and_the_text_stays_on_white(linked):
    page = linked()
    picture = f"() => document.querySelector('{MAP} .mta-cells').toDataURL()"
    light = page.evaluate(picture)
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(f"light => ({picture})() !== light", arg=light)
    white = "rgb(255, 255, 255)"
    expect(page.locator(f"{TEXT} .mta-text")).to_have_css("background-color", white)
    assert page.locator(MAP).count() == 1


def test_a_label_over_others_hides_those_it_meets_whole_and_no_other(linked):
    page = linked("The cat sat on the mat. " * 5)  # too long for a label to each token
    for zoom in ("", "+", "+"):
        if zoom:
            page.locator(f"{MAP} .mta-map").press(zoom)
        _, bottom, left, _ = page.evaluate(WINDOW)
        hidden = 0
        for step in range(9):  # not those that have a label alone
            query, key = int(bottom) - 2 - step, int(left) + 2 + step
            page.mouse.move(*cell_at(page, query, key))
            covers, labels = page.evaluate(LABELS)
            assert len(covers) >= 2
            for line, (low, high) in covers:
                for other, at in labels:
                    apart = at + HALF <= low or at - HALF >= high
                    assert other != line or apart or low <= at - HALF < at + HALF <= high
                    hidden += other == line and not apart
        assert hidden
