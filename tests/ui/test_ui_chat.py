"""The switch beside the prompt: a message in the model's chat template, which is then the prompt itself."""

import pytest

from mta_viz.ui.shell.cache import discovery
from mta_viz.ui.shell.link import Box
from tests.gguf_files import random_arrays, sizes, write_gguf
from tests.ui.driver import address_of, app_at, borrowed, fine, part_of, run_until, said, view_of

MARKED = "{% for m in messages %}{{ bos_token }}{{ m.content }}{{ eos_token }}{% endfor %}!"


@pytest.fixture
def chatting(tmp_path, monkeypatch):
    """`chatting(template, message)`: the app on a model with that template."""
    monkeypatch.setenv("MTA_VIZ_PROMPTS", str(tmp_path / "prompts"))

    def start(template, message="the 12", **address):
        extra = {"tokenizer.chat_template": template} if template else None
        folder = tmp_path / f"models-{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        write_gguf(folder / "small.gguf", "llama", random_arrays(sizes()), sizes(), extra=extra)
        monkeypatch.setenv("MTA_VIZ_MODELS", str(folder))
        discovery.clear()
        return app_at(**address_of("small.gguf", message, **address)).run()

    return start


def switch(app, on):
    borrowed(app.toggle, "chat").set_value(on).run()
    return app


def box_of(app):
    return borrowed(app.text_area, "prompt").value


def test_the_prompt_is_the_message_in_the_template_and_back(chatting):
    app = chatting(MARKED)
    assert box_of(app) == "the 12"
    fine(switch(app, True))
    assert box_of(app) == "<|start|>the 12<|end|>!"
    app.button(key="run").click().run()
    run_until(app, "8 tokens")
    assert view_of(app)["p"] == "<|start|>the 12<|end|>!"  # a link has what the model saw
    fine(switch(app, False))
    assert box_of(app) == "the 12"


def test_an_edited_text_stays_and_another_prompt_ends_the_chat(chatting):
    app = switch(chatting(MARKED), True)
    borrowed(app.text_area, "prompt").set_value("<|start|>12<|end|>").run()
    assert box_of(app) == "<|start|>12<|end|>" and borrowed(app.toggle, "chat").value
    part_of(app, Box).ask("the")
    assert not borrowed(app.run().toggle, "chat").value and box_of(app) == "the"


def test_there_is_no_switch_without_a_template(chatting):
    assert not [toggle for toggle in chatting(None).toggle if "chat" in (toggle.key or "")]


def test_a_template_that_fails_leaves_the_message(chatting):
    app = switch(chatting("{{ raise_exception('no user here') }}"), True)
    assert "no user here; give the prompt as it is" in said(app)
    assert box_of(app) == "the 12" and not borrowed(app.toggle, "chat").value


def test_what_was_typed_and_not_run_is_there_after_a_reload(chatting):
    app = chatting(MARKED)
    run_until(app, "5 tokens")
    fine(switch(app, True))
    borrowed(app.text_area, "prompt").set_value("<|start|>the the 12<|end|>!").run()
    address = view_of(app)
    assert address["p"] == "the 12" and address["message"] == "the 12"
    app = app_at(**address).run()
    run_until(app, "5 tokens")  # the run that was shown
    assert box_of(app) == address["typed"] == "<|start|>the the 12<|end|>!"
    assert borrowed(app.toggle, "chat").value
    fine(switch(app, False))
    assert box_of(app) == "the 12" and not {"typed", "message"} & view_of(app).keys()
    assert "could not be restored" not in said(app)


def test_a_text_that_was_typed_and_not_run_is_there_without_a_template(chatting):
    app = chatting(None)
    run_until(app, "5 tokens")
    long = "the 12 " * 300
    borrowed(app.text_area, "prompt").set_value(long).run()
    address = view_of(app)
    assert address["p"] == "the 12" and address["typed"].startswith("kept:")
    app = app_at(**address).run()
    run_until(app, "5 tokens")
    assert box_of(app) == long
    app.button(key="run").click().run()
    assert "typed" not in view_of(app)
