"""The Kernels page as a visitor opens and drives it; what its figures show is tests/figures' business."""

import json

import pytest
import torch

from mta_viz.analysis.cause.effects import find_effects
from mta_viz.analysis.kernels.definitions import measured_rates
from mta_viz.analysis.kernels.kernels import KernelId
from mta_viz.checkpoint.native import write_kernels
from mta_viz.run.tracing import load
from mta_viz.version import ASSETS
from tests.tiny_models import write_wide
from tests.ui.driver import app_at, borrowed, charts, fine, run_through, run_until, said, session_of

PAGE = "pages/kernels.py"
NEEDLE = "Fog. The magic number of Oslo is 12. Rain. The magic number of Oslo is"
PAPER = {"part": "Paper figures"}


def ids(chart) -> list[str]:
    """The kernels one can click on a mosaic, in order."""
    targets = next(trace for trace in chart["data"] if trace.get("meta") == "targets")
    return [target[0] for target in targets["customdata"]]


def kernel(app) -> tuple[int, int, str]:
    view = session_of(app).selection
    return view.layer, view.head, view.place


def caption_to_copy(app) -> str:
    """The paper figure's."""
    (caption,) = [code.value for code in app.get("code") if "heads count from" in code.value]
    return caption


def test_the_gallery_is_filtered_and_an_unread_query_says_where(open_app):
    app = open_app("tiny-mta", "Hello", PAGE)
    fine(app)
    assert "16 kernels:" in said(app) and "own envelope, Gaussian with the energy" in said(app)
    assert "No key-query kernel in L0, 2" in said(app) and len(app.dataframe[-1].value) == 48
    borrowed(app.text_input, "kernel_query").set_value("layer >= 3 and post, head != 1").run()
    fine(app)
    assert sorted(ids(charts(app)[0])) == ["post 3 0", "post 3 2", "post 3 3"]
    assert list(app.dataframe[-1].value["head"]) == [0, 2, 3]
    borrowed(app.text_input, "kernel_query").set_value("layer > 99").run()
    fine(app)
    assert "No kernel satisfies layer > 99; clear the box" in said(app) and not charts(app)
    borrowed(app.text_input, "kernel_query").set_value("diagonl > 0.5").run()
    assert not app.exception
    assert "at character 1" in app.error[0].value and "Near it: diagonal" in app.error[0].value


def test_an_address_opens_a_card_whose_buttons_go_on(open_app):
    app = open_app("tiny-mta", "Hello", PAGE, layer=3, head=2, place="post")
    fine(app)
    assert "tiny-mta · L3 H2 · after the softmax" in said(app)
    assert [len(chart["layout"].get("shapes", [])) for chart in charts(app)[:2]] == [2, 0]
    assert len(charts(app)) == 6  # atlas, head mixing, taps, probe, scores, nearest kernels
    assert "The answer “" in said(app)  # measured at once on a short prompt
    borrowed(app.toggle, "hide_own_tap").set_value(True)
    borrowed(app.toggle, "card_frequency").set_value(True)
    app.selectbox(key="card.probe.3.2.post").set_value("run of keys").run()
    fine(app)
    assert "(hidden)" in json.dumps(charts(app)) and "In a run of 13 equal keys" in said(app)
    assert len(charts(app)) == 7
    app.button(key="card.open.0").click().run()
    fine(app)
    assert kernel(app) != (3, 2, "post")


def test_the_atlas_opens_on_the_kernel_that_matters_most_and_says_by_what(open_app, monkeypatch):
    app = open_app("tiny-mta", NEEDLE, PAGE)
    fine(app)
    assert "Sorted by what each adds to the last token's share of the needle “Oslo” on this prompt." in said(
        app
    )
    words, card = said(app), app.markdown
    assert words.index("On your prompt") < words.index("Looks like: ") < words.index("Matters on the task")
    assert session_of(app).selection.layer is None and any("#####" in text.value for text in card)
    first = charts(app)[0]["layout"]["shapes"]
    app.button(key="step.kernel.Right").click().run()
    fine(app)
    assert charts(app)[0]["layout"]["shapes"] != first and kernel(app)[0] is not None
    monkeypatch.delenv("MTA_VIZ_MODELS", raising=False)
    app = app_at(PAGE, ck="blocks-n5-mta").run()
    fine(app)
    assert "Sorted by what the answer loses without each" in said(app) and "of the blocks task" in said(app)
    lost = find_effects(ASSETS / "blocks-n5-mta", "own-tap").of(KernelId(2, 0, "pre"))
    assert f"L2 H0 −{-lost.log_probability_change.value:.2f}" in json.dumps(
        charts(app)[0], ensure_ascii=False
    )


def test_old_addresses_of_the_page_lead_to_their_kernels(open_app):
    old = {
        "kernel_query": "layer >= 3",
        "kernel_sort": "diagonal",
        "kernel_places": "post",
        "kernel_scale": "own",
    }
    app = open_app("tiny-mta", "Hello", PAGE, old | {"part": "Gallery", "hide_own": "false"}, layer=3, head=2)
    fine(app)
    assert "could not be restored" not in said(app) and len(ids(charts(app)[0])) == 4
    assert kernel(app) == (3, 2, "pre")
    app = open_app("tiny-mta", "Hello", PAGE, {"arranged": "layer", "kernel_numbers": "true"})
    fine(app)
    assert "Colour: one scale to" in said(app) and len(charts(app)) == 2


def test_a_card_measures_which_way_the_kernel_acts_on_the_prompt(open_app):
    app = open_app("tiny-mta", "Hello, hello", PAGE, layer=3, head=2, place="pre")
    fine(app)
    assert "On this prompt: Where a key repeats the query's token, the kernel reads " in said(app)
    assert "One prompt: no interval." in said(app)
    app.button(key="start.kernels at matches").click()
    run_through(app, "kernels at matches")
    fine(app)
    table = app.dataframe[-1].value
    assert table["match_gap"].notna().sum() == 16 and "lowers" in " ".join(table["action"].dropna())
    app = open_app("tiny-mta", "abc", PAGE, layer=3, head=2, place="pre")
    assert "Not measured at matches: no token of the prompt comes again" in said(app)


def test_arrows_walk_the_shown_kernels_to_a_mixing_row(open_app):
    app = open_app("tiny-mta", "Hello", PAGE, {"arranged": "layer"}, layer=3, head=3, place="pre")
    app.button(key="step.kernel.Right").click().run()
    fine(app)
    assert kernel(app) == (3, 0, "post")
    app.button(key="step.kernel.Down").click().run()
    fine(app)
    assert kernel(app) == (0, 0, "head_pre") and "What each head" not in said(app)
    assert "no probe is needed" in said(app) and len(charts(app)) == 4  # mosaics, row, matrix


def test_a_file_with_kernels_only_shows_cards_and_says_that_no_prompt_can_be_run(
    tmp_path, monkeypatch, open_app
):
    write_wide(tmp_path / "wide")
    monkeypatch.setenv("MTA_VIZ_MODELS", str(tmp_path))
    app = open_app("wide", "Hello", PAGE, layer=3, head=2, place="post")
    fine(app)
    assert "L3 H2 · after the softmax" in said(app) and "This file holds kernels only" in said(app)
    assert "On this model's scores: not measured, no prompt has run." in said(app)
    app = open_app("wide", "Hello", "pages/workspace.py")
    fine(app)
    assert "for attention maps open the whole model" in said(app)


def test_definitions_are_one_click_from_the_atlas(open_app):
    app = open_app("tiny-blocks", None, PAGE)
    fine(app)
    assert "A two-row kernel cannot show: diagonal" in said(app)
    app.button(key="part.Definitions").click().run()
    fine(app)
    shown = [table.value for table in app.dataframe]
    for table, rates in zip(shown, vars(measured_rates()).values(), strict=True):
        assert table["n"].tolist() == [rate.n for rate in rates]
        shares = [float(share.rstrip("%")) / 100 for share in table.iloc[:, 3]]
        assert shares == pytest.approx([rate.share for rate in rates], abs=6e-4)
    assert shown[0].iloc[0]["with a name"] == f"{measured_rates().false_names[0].share:.2%}"
    text = " ".join(str(value) for table in app.table for value in table.value["definition"])
    assert "1 where earlier and later keys count alike" in text.replace("\\", "")
    assert "Benjamini-Hochberg over all kernels" in said(app) and "own envelope" in said(app)


def test_the_needle_that_is_asked_for_gets_its_gain(open_app):
    prompt = "The magic number of Rome is 12. The magic number of Oslo is 77. The magic number of Rome is"
    app = open_app("tiny-mta", prompt, PAGE, layer=0, head=3, place="head_post")
    fine(app)
    assert "the needle “Rome” gets" in said(app) and "Press Run" not in said(app)
    assert "has not been measured" in said(app) and "effects " in said(app) and "--task needle" in said(app)


def test_one_layer_names_the_layers_that_have_kernels(open_app):
    app = open_app("tiny-mta", "Hello", PAGE, {"part": "One layer"}, layer=0)
    fine(app)
    assert "L0 has no key-query kernel before the softmax. Layers that have one: 1, 3." in said(app)
    borrowed(app.selectbox, "layer").set_value(1).run()
    fine(app)
    assert len(charts(app)) == 4 and "4 kernels of 6 queries x 11 keys" in said(app)


def test_the_slider_goes_through_the_snapshots(monkeypatch):
    monkeypatch.delenv("MTA_VIZ_MODELS", raising=False)
    app = app_at(PAGE, ck="blocks-n5-mta", part="Over training", l="2", h="1").run()
    fine(app)
    last = charts(app)[0]["data"][0]
    borrowed(app.select_slider, "training_step").set_value(0)
    borrowed(app.selectbox, "training_score").set_value("first_of_run").run()
    fine(app)
    first, curves = charts(app)
    assert "after 0 training steps" in said(app) and "first of run" in json.dumps(curves["layout"])
    assert first["data"][0]["zmax"] == last["zmax"] and first["data"][0]["z"] != last["z"]
    app = app_at(PAGE, ck="blocks-n5-transformer", part="Over training").run()
    fine(app)
    assert "no key-query kernels" in said(app) and not charts(app)


def test_every_paper_figure_has_its_caption_and_width(open_app):
    app = open_app("tiny-mta", NEEDLE, PAGE, PAPER)
    for figure in ("kernels", "kernel-map", "head-kernels", "head-diagonal", "head-ratio"):
        borrowed(app.segmented_control, "figure").set_value(figure).run()
        fine(app)
        (chart,) = charts(app)
        assert chart["layout"]["width"] == 658 and "174 x" in said(app), figure
        assert "of tiny-mta" in caption_to_copy(app)
    borrowed(app.segmented_control, "figure_width").set_value("column").run()
    assert charts(app)[0]["layout"]["width"] == 317
    app = open_app("tiny-mta", "x", PAGE, PAPER | {"figure": "kernel-map"})
    assert "no named span" in said(app) and not charts(app)


def test_the_map_goes_back_to_its_strongest_head(open_app):
    app = open_app("tiny-mta", NEEDLE, PAGE, PAPER | {"figure": "kernel-map"})
    fine(app)
    caption = caption_to_copy(app)
    assert "attends most to the needle “Oslo”" in said(app)
    head = borrowed(app.selectbox, "head")
    head.set_value((head.value + 1) % 4).run()
    fine(app)
    assert caption_to_copy(app) != caption
    app.button(key="figure.strongest").click().run()
    fine(app)
    assert caption_to_copy(app) == caption
    rows = borrowed(app.selectbox, "figure_rows")
    rows.set_value(next(part for part in rows.options if "asked" in part)).run()
    fine(app)
    assert "rows: “The magic number of Oslo is 12.”" in caption_to_copy(app)


def test_what_the_model_lacks_is_said_in_the_figure_s_place(models_folder, open_app, tmp_path, monkeypatch):
    app = open_app("tiny-plain", None, PAGE, PAPER)
    fine(app)
    assert "no kernels at all: no key-query kernels" in said(app) and not charts(app)
    model = load(models_folder / "tiny-mta")
    monkeypatch.setenv("MTA_VIZ_MODELS", str(tmp_path))
    write_kernels(tmp_path / "kernels-only", model.config, model.state_dict())
    app = open_app("kernels-only", None, PAGE, PAPER | {"figure": "kernel-map"})
    fine(app)
    assert "kernels only" in said(app)


def test_a_dump_of_the_reference_opens_on_the_page(open_app, tmp_path, monkeypatch):
    kernels = {f"Layer {layer}": torch.randn(4, 1, 2, 3) for layer in (1, 2)}
    torch.save(kernels, tmp_path / "kernel_weights.pt")
    monkeypatch.setenv("MTA_VIZ_MODELS", str(tmp_path))
    app = open_app("kernel_weights.pt", None, PAGE)
    fine(app)
    assert "kernels only" in said(app) and charts(app)


@pytest.mark.browser
def test_all_kernels_come_in_one_file_and_each_page_says_what_it_is(open_app, tmp_path):
    app = open_app("tiny-mta", "Hello", PAGE, PAPER)
    app.button(key="all_kernels.make").click().run()
    fine(app)
    assert "6 figures: one for each layer and place" in said(app)
    assert [button for button in app.get("download_button") if "MB)" in button.proto.label]


def test_recurrence_says_what_it_needs_and_matches_what_is_there(open_app):
    app = open_app("tiny-mta", "Hello", PAGE, {"part": "Recurrence", "trainings": "no-tokenizer"})
    fine(app)
    assert "1 training to match" in said(app)
    app.button(key="start.recurrence").click().run()
    run_until(app, "optimal transport between heads")
    fine(app)
    assert app.dataframe[-1].value["training"].tolist() == ["no-tokenizer"]
    other = open_app("tiny-mta", "Another prompt", PAGE, {"part": "Recurrence", "trainings": "no-tokenizer"})
    fine(other)  # it is of the weights: nothing is measured anew
    assert other.dataframe[-1].value["training"].tolist() == ["no-tokenizer"]
    alone = open_app("tiny-blocks", None, PAGE, {"part": "Recurrence"})
    fine(alone)
    assert "needs a second training of this shape" in said(alone)
