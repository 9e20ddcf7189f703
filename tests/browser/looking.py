"""What every browser test does with a page: wait until it rests, run a prompt, find a point on a chart."""

import re

PROMPT = "The cat sat on the mat."
MAP, TEXT = ".st-key-exact .mta-maps", ".mta-words"
TITLE = f"() => document.querySelector('{MAP}')?.dataset.title || ''"
WINDOW = f"""() => {{
    const store = document.querySelector('{MAP}').mtaView.store, [first, before] = store.header.start;
    const [top, bottom, left, right] = store.state.box;
    return [first + top, first + bottom, before + left, before + right];
}}"""  # first query shown and the one after the last, then the keys
RESTS = """() => {
    const story = document.querySelector('.st-key-stop-story') && !document.querySelector('[role=dialog]');
    const loads = document.querySelector('[data-testid="stSkeleton"]');
    const runs = document.querySelector('[data-testid="stApp"]')?.dataset.testScriptState !== 'notRunning';
    window.mtaRests = story || loads || runs ? null : window.mtaRests ?? performance.now();
    return window.mtaRests !== null && performance.now() - window.mtaRests > 500;
}"""


def settle(page):
    """Until nothing runs or is being loaded, and no story is on its way but behind a window.

    For a while, since a run that is cut short is followed by another one a moment later.
    """
    page.evaluate("() => { window.mtaRests = null; }")
    page.wait_for_function(RESTS)


def wait_for_map(page, words):
    """Until the large map's title holds the words."""
    page.wait_for_function(f"words => ({TITLE})().includes(words)", arg=words)


def cell_at(page, query, key, panel=0):
    """Where the middle of a cell of the large map, or of one of several, is on the screen."""
    where = f"""([query, key, panel]) => {{
        const root = document.querySelector('{MAP}');
        root.querySelector('.mta-map').scrollIntoView({{block: 'center'}});
        return root.mtaView.at(query, key, panel);
    }}"""
    return page.evaluate(where, [query, key, panel])


def token(page, position):
    """A token of the prompt as the view writes it."""
    return page.locator(f"{TEXT} [data-at='{position}']")


def run_prompt(page, text):
    box = page.get_by_label("Prompt", exact=True)
    box.fill(text)
    box.press("Control+Enter")
    page.get_by_text(re.compile(rf"\b{len(text.encode()) + 1:,} tokens")).first.wait_for()


def click(page, x, y):
    """A click on a chart that rests, once its plotly has seen where the pointer is.

    It looks 50 ms after a move at the earliest, and drops a click that comes before. Another chart may
    still hold what it saw.
    """
    page.mouse.move(x - 2, y - 2)
    page.mouse.move(x, y)
    page.wait_for_function(
        "([x, y]) => document.elementFromPoint(x, y)?.closest('.js-plotly-plot')?._hoverdata", arg=[x, y]
    )
    page.wait_for_timeout(200)
    page.mouse.down()
    page.mouse.up()


def at(page, chart, x, y, axis=""):
    """Where a point of a chart's axes (`axis` "3": x3 and y3) is on the screen."""
    return page.evaluate(
        """([chart, x, y, axis]) => {
            const plot = document.querySelector(chart + ' .js-plotly-plot');
            plot.scrollIntoView({block: 'center'});
            const layout = plot._fullLayout, across = layout['xaxis' + axis], down = layout['yaxis' + axis];
            const pane = plot.closest('.st-key-atlas');  // higher than the window: the point in its middle
            const middle = down._offset + down.c2p(y) - innerHeight / 2;
            if (pane) pane.scrollTop += plot.getBoundingClientRect().top + middle;
            const box = plot.getBoundingClientRect();
            return [box.left + across._offset + across.c2p(x), box.top + down._offset + down.c2p(y)];
        }""",
        [chart, x, y, axis],
    )


def click_target(page, chart, data):
    """Click the invisible target whose customdata begins with `data`."""
    x, y = page.evaluate(
        """([chart, data]) => {
            const plot = document.querySelector(chart + ' .js-plotly-plot');
            for (const trace of plot.calcdata) {
                const all = trace[0].trace.customdata;
                if (!all) continue;
                for (let index = 0; index < trace.length; index++) {
                    const own = [...(all[index].length === undefined ? [all[index]] : all[index])];
                    const same = data.every((value, part) => own[part] === value);
                    if (same) return [trace[index].x, trace[index].y];
                }
            }
        }""",
        [chart, data],
    )
    click(page, *at(page, chart, x, y))
