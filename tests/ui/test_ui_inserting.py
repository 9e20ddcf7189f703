"""Kernels inserted in the app, and adapters in the picker: with their base, asked for it, without it."""

import pytest
import torch

from mta_viz.checkpoint.adapter import ADAPTER, AdapterAbout, AdapterBase, read_adapter, write_adapter
from mta_viz.checkpoint.layout import kernel_entries
from mta_viz.checkpoint.locate import sha256
from mta_viz.checkpoint.relatives import made_models
from mta_viz.config import MTAOptions
from mta_viz.model.transformer import HookedMTA
from mta_viz.ui.kernels import inserting
from mta_viz.ui.shell.cache import discovery
from mta_viz.ui.shell.link import Box, examples
from mta_viz.ui.shell.page import ASSETS
from mta_viz.ui.shell.widgets import Window
from tests.tiny_models import config, write_models
from tests.ui.driver import address_of, app_at, borrowed, charts, fine, part_of, said, session_of, view_of

KERNELS = "pages/kernels.py"
MTA = MTAOptions(pre_kernel=(6, 11), mta_layers=(1,))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The tiny models in a folder of this test's own, looked for anew."""
    root = write_models(tmp_path / "models")
    monkeypatch.setenv("MTA_VIZ_MODELS", str(root))
    monkeypatch.setenv("MTA_VIZ_PROMPTS", str(tmp_path / "prompts"))
    discovery.clear()
    yield root
    discovery.clear()


def open_at(checkpoint, page=KERNELS, prompt="Hello"):
    return app_at(page, **address_of(checkpoint, prompt)).run()


def write(file, digest, name="tiny-plain", **about):
    shapes = config(MTA, 258)
    with torch.random.fork_rng():
        state = HookedMTA(shapes).state_dict()
    file.parent.mkdir(exist_ok=True)
    kernels = {name: state[name] + 0.1 for name in kernel_entries(shapes)}
    write_adapter(file, shapes, kernels, AdapterAbout(AdapterBase(name, digest), MTA, **about))


def test_kernels_are_inserted_and_the_adapter_opened(folder):
    app = open_at("tiny-plain")
    fine(app)
    assert "insert them at the identity" in said(app)
    app.button(key="insert.open").click().run()
    assert app.multiselect(key="insert.layers").value == [1, 2]  # the lower half of a shallow model
    app.multiselect(key="insert.layers").set_value([1, 3])
    app.selectbox(key="insert.mixing").set_value("pre")
    app.selectbox(key="insert.root").set_value(folder)
    app.button(key="insert.write").click().run()
    fine(app)
    assert "the same, bit for bit" in said(app) and "needs code of your own" in said(app)
    written = part_of(app, Window).made
    assert written.folder == folder / "tiny-plain-inserted" and written.change.largest == 0
    adapter = read_adapter(written.folder / ADAPTER)
    assert adapter.about.options == MTAOptions(pre_kernel=(6, 11), mta_layers=(1, 3), head_pre=True)
    assert adapter.about.base.name == "tiny-plain"


@pytest.mark.parametrize("given", ["tiny-plain", "tiny-plain/model.safetensors"])
def test_a_model_that_is_named_itself_is_no_place_for_a_new_folder(folder, monkeypatch, given):
    monkeypatch.setenv("MTA_VIZ_MODELS", f"{folder / given}:{folder}")
    app = open_at("tiny-plain")
    app.button(key="insert.open").click().run()
    assert app.selectbox(key="insert.root").options == [str(folder), str(made_models())]


def test_what_is_made_of_a_shipped_model_lies_in_a_folder_of_the_user(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("MTA_VIZ_MODELS", raising=False)
    app = open_at("needle-transformer")
    app.button(key="insert.open").click().run()
    assert app.selectbox(key="insert.root").options == [str(made_models())]
    assert "where models are looked for each time" in said(app)
    app.button(key="insert.write").click().run()
    app.button(key="insert.show").click().run()
    fine(app)
    assert session_of(app).selection.checkpoint == "needle-transformer-inserted"
    assert (tmp_path / "data" / "mta_viz-models" / "needle-transformer-inserted" / ADAPTER).is_file()
    assert not (ASSETS / "needle-transformer-inserted").exists()
    monkeypatch.setattr(inserting, "made_models", lambda: None)
    app = open_at("needle-transformer")
    app.button(key="insert.open").click().run()
    assert "no folder for models that can be written to; start the app with --models" in said(app)


def test_the_form_of_the_train_page_opens_filled_with_what_was_inserted(folder):
    write(folder / "mine" / ADAPTER, sha256(folder / "tiny-plain"))
    app = open_at("mine", "pages/train.py")
    assert "mine is none: it has its own already (MTA)" in said(app)
    app.button(key="train.base").click().run()
    assert not app.exception
    assert session_of(app).selection.checkpoint == "tiny-plain"
    assert borrowed(app.multiselect, "train_layers").value == [1]
    assert [borrowed(app.number_input, f"train_{name}").value for name in ("queries", "keys")] == [6, 11]


def test_what_cannot_be_inserted_is_said_in_the_dialog(folder):
    app = open_at("tiny-plain")
    app.button(key="insert.open").click().run()
    app.number_input(key="insert.keys").set_value(10)
    app.multiselect(key="insert.layers").set_value([])
    app.button(key="insert.write").click().run()
    assert "even key size 10" in said(app) and "no layer is named" in said(app)
    assert not (folder / "tiny-plain-inserted").exists()


def test_a_model_with_kernels_offers_none(folder):
    app = open_at("tiny-mta")
    fine(app)
    assert not [button for button in app.button if button.key == "insert.open"]


def test_an_adapter_runs_on_the_base_that_is_found(folder):
    write(folder / "mine" / ADAPTER, sha256(folder / "tiny-plain"))
    app = open_at("mine", page="app.py")
    fine(app)
    assert charts(app)
    (picker,) = [box for box in app.selectbox if box.label == "Checkpoint"]
    assert "mine · MTA adapter of tiny-plain" in picker.options
    assert (
        picker.options.index("mine · MTA adapter of tiny-plain")
        == picker.options.index("tiny-plain · Transformer") + 1
    )
    kernels = open_at("mine")
    fine(kernels)
    assert charts(kernels)


def test_a_page_as_it_opens_shows_the_example_of_the_models_task_and_a_visitors_text_stays(folder):
    write(folder / "mine" / ADAPTER, sha256(folder / "tiny-plain"), recipe={"task": "pairs"})

    def text(app):
        fine(app)
        return part_of(app, Box).text

    def choose(app, name):
        return borrowed(app.selectbox, "checkpoint").set_value(name).run()

    usual, pairs = (named(name) for name in ("Four needles, short", "A name and a city, nine pairs"))
    app = open_at("tiny-plain", "app.py", None)
    assert text(app) == usual and text(choose(app, "mine")) == pairs
    assert text(choose(app, "tiny-plain")) == usual
    reloaded = app_at("app.py", **view_of(app)).run()  # its address names the example
    assert text(reloaded) == usual and text(choose(reloaded, "mine")) == pairs
    asked = app_at("app.py", ck="mine", ex="Four needles, short").run()
    assert text(asked) == usual and text(choose(asked, "tiny-plain")) == usual
    own = open_at("tiny-plain", "app.py", "Hello")
    assert text(choose(own, "mine")) == "Hello"


def named(name):
    """An example's text."""
    return next(example.text for example in examples() if example.name == name)


def test_an_adapter_without_its_base_shows_its_kernels_and_asks_for_it(folder, tmp_path):
    elsewhere = write_models(tmp_path / "elsewhere") / "tiny-plain"
    for part in (folder / "tiny-plain").iterdir():
        part.unlink()
    (folder / "tiny-plain").rmdir()
    write(folder / "mine.safetensors", sha256(elsewhere))
    app = open_at("mine.safetensors")
    fine(app)
    assert charts(app) and "an adapter of tiny-plain (weights with sha256" in said(app)
    assert not {"card.attention", "card.test"} & {button.key for button in app.button}
    assert "to run prompts, say at the left" in said(app) and "Press Run" not in said(app)
    (field,) = [box for box in app.text_input if box.label == "Base"]
    field.set_value(str(folder / "tiny-mta")).run()
    fine(app)
    assert "its weights have sha256" in said(app) and "the base is tiny-plain" in said(app)
    (field,) = [box for box in app.text_input if box.label == "Base"]
    field.set_value(str(elsewhere)).run()
    fine(app)
    assert not [box for box in app.text_input if box.label == "Base"]
    assert session_of(app).selection.checkpoint == "mine.safetensors" and charts(app)
    assert {"run", "card.attention", "card.test"} <= {button.key for button in app.button}
