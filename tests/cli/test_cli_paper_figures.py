"""`paper-figures`: picture, numbers and caption; nothing replaced unasked, and what is missing said."""

import csv
import io
from pathlib import Path

import pytest
import torch
from choreographer.browsers.chromium import Chromium
from cli_support import CONFIG, ROOT, assert_refused
from pypdf import PdfReader

from mta_viz.checkpoint.native import write_kernels, write_native
from mta_viz.config import MTAOptions
from tests.tiny_models import config, random_weights

BLOCKS = ("--prompt", "hjnvt.qdgzf.aoxsb#gd", "--keys", "qdgzf")


@pytest.fixture
def html(run, folder, tmp_path):
    """`html("--which", "kernels")`: the command without a need for a browser; its files are in `out`."""

    def draw(*more: object):
        return run("paper-figures", folder, "--out", tmp_path / "out", "--format", "html", *more)

    return draw


@pytest.fixture(autouse=True)
def no_browser(monkeypatch, request):
    if "browser" not in request.keywords:
        monkeypatch.setattr(Chromium, "find_browser", lambda **_: None)


def rows(file: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(file.read_text())))


def test_each_figure_has_picture_numbers_and_caption(html, tmp_path, model):
    answer = html(*BLOCKS)
    assert answer.status == 0, answer.err
    stems = [name.removesuffix(".html") for name in answer.json["written"] if name.endswith(".html")]
    assert [stem.split("-", 1)[1].split("-L1")[0] for stem in stems] == [
        *("kernels", "kernels", "kernel-map", "kernel-map"),
        *("head-kernels-head_pre", "head-kernels-head_post", "head-diagonal", "head-ratio"),
    ]
    for stem in stems:
        assert {f"{stem}.{end}" for end in ("html", "csv", "txt", "json")} <= set(answer.json["written"])
        assert "Plotly.newPlot" in (tmp_path / "out" / f"{stem}.html").read_text()
        assert "small" in (tmp_path / "out" / f"{stem}.txt").read_text()
    taps = rows(tmp_path / "out/small-kernels-L1-pre.csv")
    kernel = model.state_dict()["blocks.1.attn.kernel_pre"]
    assert torch.tensor([float(row["value"]) for row in taps]).equal(kernel.flatten())
    means = rows(tmp_path / "out/small-head-diagonal.csv")
    first = model.state_dict()["blocks.0.attn.head_pre"][0].double().numpy().diagonal()
    assert float(means[0]["mean_abs_diagonal"]) == pytest.approx(abs(first).mean(), rel=1e-12)
    assert [row["key_query_kernels"] for row in means[:2]] == ["0", "1"]


def test_only_the_figures_named_are_drawn_and_layers_can_be_chosen(html):
    answer = html("--which", "head-kernels,kernels", "--layer", "1")
    assert len(answer.json["written"]) == 4 * 4 and answer.json["left_out"] == {}
    assert_refused(html("--which", "kernel,ratio"), "no figure kernel, ratio", "head-diagonal")
    assert_refused(html("--which", "kernels", "--layer", "0", "--force"), "layers that have: 1")


def test_the_needle_task_that_does_not_fit_is_left_out_with_the_way_out(html):
    answer = html()
    assert answer.status == 0 and "--prompt TEXT --keys TEXT" in answer.json["left_out"]["kernel-map"]
    assert "kernel-map is left out" in answer.err
    assert_refused(html("--which", "kernel-map"), "kernel-map: the needle task does not fit")


def test_the_map_is_of_the_tokens_named(html, tmp_path):
    html("--which", "kernel-map", "--head", "1,2", *BLOCKS, "--rows", "gd")
    cells = [r for r in rows(tmp_path / "out/small-kernel-map-L1-H2-pre.csv") if r["part"] == "map"]
    assert [row["key_token"] for row in cells] == list("qdgzf") * 2
    assert sorted({row["query_token"] for row in cells}) == ["d", "g"]


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--keys", "qdgzf"), "--prompt TEXT, which is missing"),
        (("--prompt", "abc.def#de"), "name the keys to show with --keys"),
        (("--prompt", "abc.def#de", "--keys", "xyz"), "does not hold 'xyz', which --keys names"),
        (
            (*BLOCKS, "--head", "0,0"),
            "layer 0 has no key-query kernel before the softmax; layers that have: 1",
        ),
        ((*BLOCKS, "--head", "1,9"), "head"),
        ((*BLOCKS, "--head", "9"), "is not a layer and a head such as 5,7"),
    ],
)
def test_a_map_that_cannot_be_made_says_why(html, tmp_path, more, told):
    assert_refused(html("--which", "kernel-map", *more), told)
    assert not (tmp_path / "out").exists()


def test_nothing_is_replaced_unasked_and_replacing_is_said(html, tmp_path):
    html("--which", "head-ratio")
    file = tmp_path / "out/small-head-ratio.csv"
    file.write_text("mine")
    assert_refused(html("--which", "head-ratio"), "small-head-ratio.html", "--force")
    assert file.read_text() == "mine"
    answer = html("--which", "head-ratio", "--force")
    assert answer.status == 0 and "note: replaced in" in answer.err and "small-head-ratio.csv" in answer.err
    assert file.read_text().startswith("where,layer")


def test_a_folder_that_is_a_file_is_refused(run, folder, tmp_path):
    (tmp_path / "notes").write_text("mine")
    assert_refused(run("paper-figures", folder, "--out", tmp_path / "notes", "--format", "html"), "is a file")


@pytest.mark.parametrize("format", ["pdf", "svg", "png"])
def test_without_a_browser_one_line_says_what_to_do(run, folder, tmp_path, format):
    answer = run(
        "paper-figures", folder, "--out", tmp_path / "out", "--format", format, "--which", "head-ratio"
    )
    assert_refused(answer, f"{format} needs Chrome or Chromium", "Saving as html needs none")
    assert len(answer.err.splitlines()) == 1 and not (tmp_path / "out").exists()


def test_every_file_makes_its_figure_again_with_equal_numbers(html, run, folder, model, tmp_path):
    options = ("--layer", "1", "--width", "column", "--head", "1,2", "--rows", "gd")
    written = html(*options, *BLOCKS).json["written"]
    stems = [name.removesuffix(".html") for name in written if name.endswith(".html")]
    assert len(stems) == 8
    for place, stem in enumerate(stems[index] for index in (1, 2, 5, 7)):
        made = tmp_path / "out" / f"{stem}.{('html', 'json')[place % 2]}"
        again = tmp_path / f"{stem}.csv"
        answer = run("figure", "--from", made, folder, "--out", again)
        assert answer.status == 0, (stem, answer.err)
        assert again.read_bytes() == (tmp_path / "out" / f"{stem}.csv").read_bytes(), stem
        assert answer.json["caption"] + "\n" == (tmp_path / "out" / f"{stem}.txt").read_text("utf-8")


def test_a_figure_of_a_needle_prompt_is_made_again_from_it(run, tmp_path):
    needle = ROOT / "assets/needle-mta"
    assert (
        run(
            "paper-figures", needle, "--out", tmp_path / "out", "--which", "kernel-map", "--format", "html"
        ).status
        == 0
    )
    (made,) = (tmp_path / "out").glob("*-post.json")
    answer = run("figure", "--from", made, needle, "--out", tmp_path / "again.csv")
    assert answer.status == 0, answer.err
    assert (tmp_path / "again.csv").read_bytes() == made.with_suffix(".csv").read_bytes()


def test_other_weights_are_refused(html, run, model, tmp_path):
    html("--which", "head-ratio")
    other = tmp_path / "other"
    weights = {name: weight + 1 for name, weight in model.state_dict().items()}
    write_native(other, CONFIG, weights, tokenizer_name="char", tokenizer_path=None, dtype=None)
    made = tmp_path / "out/small-head-ratio.html"
    assert_refused(run("figure", "--from", made, other), "has other weights than the figure")


@pytest.mark.browser
def test_a_pdf_is_as_wide_as_it_is_printed(run, folder, tmp_path):
    answer = run(
        "paper-figures", folder, "--out", tmp_path / "out", "--which", "head-ratio", "--width", "column"
    )
    assert answer.status == 0, answer.err
    page = PdfReader(tmp_path / "out/small-head-ratio.pdf").pages[0]
    assert float(page.mediabox.width) / 72 * 25.4 == pytest.approx(84, abs=0.5)


@pytest.mark.browser
def test_one_pdf_has_a_page_a_figure_named_by_its_caption(run, folder, model, tmp_path):
    out = tmp_path / "all.pdf"
    answer = run("paper-figures", folder, "--out", out, "--which", "kernels,head-ratio")
    assert answer.status == 0, answer.err
    reader = PdfReader(out)
    assert len(reader.pages) == len(reader.outline) == answer.json["pages"] > 2
    assert "of small" in reader.outline[0]["/Title"]
    assert_refused(
        run("figure", "--from", out, folder), f"holds {answer.json['pages']} figures", "--page N", "1: "
    )
    assert_refused(run("figure", "--from", out, folder, "--page", "99"), "--page N")
    for page, item in enumerate(reader.outline, start=1):
        again = run("figure", "--from", out, folder, "--page", page, "--out", tmp_path / f"{page}.csv")
        assert again.json["caption"][:200] == item["/Title"], page
    taps = rows(tmp_path / "2.csv")
    assert torch.tensor([float(row["value"]) for row in taps]).equal(
        model.state_dict()["blocks.1.attn.kernel_post"].flatten()
    )
    assert_refused(run("paper-figures", folder, "--out", out), "exists", "--force")


def test_one_pdf_is_refused_in_another_format(run, folder, tmp_path):
    answer = run("paper-figures", folder, "--out", tmp_path / "all.pdf", "--format", "svg")
    assert_refused(answer, "is one PDF", "--format svg", "name a folder")


def test_a_model_without_kernels_has_no_figures(run, tmp_path):
    shapes = config(MTAOptions(), 32)
    plain = tmp_path / "plain"
    write_native(
        plain, shapes, random_weights(shapes), tokenizer_name="char", tokenizer_path=None, dtype=None
    )
    answer = run("paper-figures", plain, "--out", tmp_path / "out", "--format", "html")
    assert answer.status == 2 and "error: nothing to draw" in answer.err and not (tmp_path / "out").exists()
    assert answer.err.count("is left out: this checkpoint has no kernels at all") == 5


def test_kernels_are_drawn_of_a_model_that_mixes_no_heads(run, tmp_path):
    shapes = config(MTAOptions(pre_kernel=(2, 3)), 32)
    write_kernels(tmp_path / "kernels", shapes, random_weights(shapes))
    for more, count in ((("--which", "kernels"), 0), ((), 4)):
        answer = run(
            "paper-figures",
            tmp_path / "kernels",
            "--out",
            tmp_path / "out",
            "--force",
            "--format",
            "html",
            *more,
        )
        assert answer.status == 0, answer.err
        assert (
            "kernels-kernels-L0-pre.html" in answer.json["written"] and len(answer.json["left_out"]) == count
        )


def test_a_file_of_kernels_alone_draws_all_but_the_map(run, model, tmp_path):
    write_kernels(tmp_path / "kernels", CONFIG, model.state_dict())
    answer = run("paper-figures", tmp_path / "kernels", "--out", tmp_path / "out", "--format", "html")
    assert answer.status == 0, answer.err
    assert "holds kernels only" in answer.json["left_out"]["kernel-map"] and len(answer.json["left_out"]) == 1
    assert len(answer.json["written"]) == 4 * 6
