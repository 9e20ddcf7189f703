"""What the pages say when a prompt cannot be run, and where; and what the small texts say."""

import pytest

from tests.ui.driver import borrowed, said, view_of


def addresses(app) -> list[str]:
    """The address lines on the page."""
    return [text.value for text in app.get("text") if "·" in text.value]


def test_a_prompt_that_cannot_be_encoded_is_told_once(open_app):
    app = open_app("tiny-blocks", "ABC")
    assert not app.exception and len(app.error) == 1 and "A" in app.error[0].value
    assert addresses(app) == ["tiny-blocks · no run"]
    assert "stands under it" in app.info[0].value
    assert view_of(app)["p"] == app.text_area[0].value == "ABC"  # a link keeps what it was made of
    app.text_area[0].set_value("").run()
    assert addresses(app) == ["tiny-blocks · no run"]
    assert said(app).count("Type something, or choose an example.") == 1
    app.text_area[0].set_value("abc#ab").run()
    app.button(key="run").click().run()
    assert not app.error and addresses(app) != ["tiny-blocks · no run"]


@pytest.mark.parametrize("ids", ["256, x", "256, 9999"])
def test_wrong_ids_are_told_once(open_app, ids):
    app = open_app("no-tokenizer")
    app.text_area[0].set_value(ids).run()
    app.button(key="run").click().run()
    assert not app.exception and len(app.error) == 1 and ids.split()[1] in app.error[0].value
    assert addresses(app) == ["no-tokenizer · no run"]


def test_a_place_without_kernels_in_any_layer_says_so(open_app):
    app = open_app("tiny-blocks", page="pages/kernels.py")
    borrowed(app.segmented_control, "part").set_value("One layer").run()
    assert "has no key-query kernel after the softmax. No layer has one." in said(app)
    assert "none" not in said(app)


def test_the_link_says_what_it_carries(open_app):
    app = open_app("tiny-mta", "Hello")
    assert "selection and settings on this prompt" in said(app)


def test_long_lines_of_the_health_card_are_wrapped(open_app):
    app = open_app("tiny-mta", "Hello")
    (card,) = [code for code in app.get("code") if "row sums of the final weights" in code.value]
    assert card.proto.wrap_lines
