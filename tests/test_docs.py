"""What README, docs and CONTRIBUTING say: links lead somewhere, examples work, definitions are complete."""

import argparse
import importlib.util
import json
import pkgutil
import re
import shlex
from collections import Counter
from pathlib import Path

import pytest

from mta_viz.analysis.attention.heads import SCORES
from mta_viz.analysis.cause import sweeps
from mta_viz.analysis.compare.pairs import CLOSE
from mta_viz.analysis.kernels import measures, naming
from mta_viz.analysis.kernels.kernels import NEAR_IDENTITY
from mta_viz.analysis.kernels.measures import MEASURES
from mta_viz.analysis.kernels.mixing import CONTRAST_QUANTILE
from mta_viz.analysis.kernels.probes import QUANTILE
from mta_viz.analysis.kernels.query import parse
from mta_viz.cli import build_parser, main
from mta_viz.model.plans import KINDS, plan_from_data
from mta_viz.model.stages import Stage
from mta_viz.run.named_tasks import parse_task
from mta_viz.tasks.intervals import DRAWS

ROOT = Path(__file__).parents[1]
DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS]
CALL = "python -m mta_viz "
OF_USERS = re.compile(r"\.\./|/|consolidated/|(checkpoints/)?\d+/")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)


def load_tool():
    spec = importlib.util.spec_from_file_location("make_commands", ROOT / "docs" / "make_commands.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool


TOOL = load_tool()


def text_of(page: Path) -> str:
    """A page without what is made from the parsers, whose usage lines are no examples."""
    return page.read_text("utf-8").partition(TOOL.MARKER)[0]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    seen: Counter[str] = Counter()
    for heading in re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text("utf-8")), re.M):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        seen[slug] += 1
        if seen[slug] > 1:
            seen[f"{slug}-{seen[slug] - 1}"] += 1
    return set(seen)


def broken_links(page: Path) -> list[str]:
    """Relative links of a page that lead to no file, or no heading."""
    broken = []
    text = re.sub(r"`[^`]*`", "", FENCE.sub("", page.read_text("utf-8")))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)
    return broken


def examples(page: Path) -> list[str]:
    """Every command line of a page, in blocks and within sentences, continued lines joined."""
    text = text_of(page)
    blocks = "\n".join(block for _, block in FENCE.findall(text)).replace("\\\n", " ")
    lines = [line.removeprefix("$ ") for line in blocks.splitlines()]
    spans = re.findall(r"`([^`\n]+)`", FENCE.sub("", text))
    return [one.removeprefix(CALL) for one in (*lines, *spans) if one.startswith(CALL)]


def transcripts(page: Path) -> list[tuple[str, str]]:
    """(command line, the JSON shown below it) of every `$` example of a page, notes left out."""
    shown = re.compile(r"^\$ " + CALL + r"((?:.*\\\n)*.*)\n(?:note: .*\n)*(\{\n(?:.*\n)*?\}\n)", re.M)
    return [(line.replace("\\\n", " "), answer) for line, answer in shown.findall(text_of(page))]


def missing_paths(page: Path) -> list[str]:
    """Paths and dotted names in backticks that stand for nothing in the project.

    Paths are from its root or from the package. Those of a user's files, which formats.md has, are left out.
    """
    words = re.findall(r"`([\w.\-/]+)`", FENCE.sub("", text_of(page)))
    paths = [word for word in words if re.search(r"/|\.(py|md|toml)$", word) and not OF_USERS.match(word)]
    names = [word for word in words if re.fullmatch(r"mta_viz(\.\w+)+", word)]
    return [
        word for word in paths if not any((base / word).exists() for base in (ROOT, ROOT / "mta_viz"))
    ] + [word for word in names if not _is_name(word)]


def _is_name(word: str) -> bool:
    try:
        pkgutil.resolve_name(word)
    except (ImportError, AttributeError):
        return False
    return True


def code_blocks(page: Path) -> list[str]:
    return [block for language, block in FENCE.findall(page.read_text("utf-8")) if language == "python"]


def methods() -> str:
    """The page of definitions, lines joined, so that a line's end hides no words."""
    return " ".join((ROOT / "docs" / "methods.md").read_text("utf-8").split())


def test_the_front_page_is_short_and_leads_to_every_other():
    text = (ROOT / "README.md").read_text("utf-8")
    assert text.count("\n") <= 150 and len(text.encode()) <= 12_000
    assert [page.name for page in DOCS if f"(docs/{page.name})" not in text] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_file_and_a_heading_that_exist(page):
    assert broken_links(page) == []


def test_a_broken_link_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# A b's `c`\n```sh\n# no heading\n[no](link)\n```\n"
        "[x](#a-bs-c) [x](#no-heading) [x](gone.md) ![x](a.png)\n"
    )
    assert broken_links(page) == ["#no-heading", "gone.md", "a.png"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_path_and_name_stands_for_something(page):
    assert missing_paths(page) == []


def test_a_path_that_is_gone_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "`app.py` `ui/` `ui/gone.py` `gone.py` `mta_viz.load` `mta_viz.gone` `../x`\n```\n`b.py`\n```\n"
    )
    assert missing_paths(page) == ["ui/gone.py", "gone.py", "mta_viz.gone"]


def test_the_reference_is_what_the_parsers_say():
    text = TOOL.PAGE.read_text("utf-8")
    assert text.split() == TOOL.page(text, build_parser()).split(), "run: python docs/make_commands.py"


def test_a_new_flag_of_a_command_or_a_recipe_changes_the_reference():
    def reference(flag: str) -> str:
        parser = argparse.ArgumentParser(prog="tool")
        train = parser.add_subparsers().add_parser("train", help="train one")
        train.add_subparsers().add_parser("blocks").add_argument(flag)
        return TOOL.reference(parser)

    assert "### train blocks" in reference("--old") and "--new" in reference("--new")
    assert reference("--old") != reference("--new")


@pytest.mark.parametrize("page", [page for page in PAGES if examples(page)], ids=lambda page: page.name)
def test_every_example_command_parses(page, capsys):
    for line in examples(page):
        try:
            build_parser().parse_args(shlex.split(line, comments=True))
        except SystemExit:
            pytest.fail(f"{line}\n{capsys.readouterr().err}")


def test_every_command_has_an_example():
    shown = {line.split()[0] for line in examples(ROOT / "docs" / "commands.md")}
    (action,) = (one for one in build_parser()._actions if isinstance(one, argparse._SubParsersAction))
    names = {command.prog.split()[-1] for command in action.choices.values()}  # an older word is none
    assert names - shown == set() and len(names) < len(action.choices)


SHOWN = [(page.name, *one) for page in PAGES for one in transcripts(page)]


def test_both_transcripts_are_found():
    assert [name for name, _, _ in SHOWN] == ["README.md", "commands.md"]


@pytest.mark.parametrize(("name", "line", "answer"), SHOWN, ids=[name for name, _, _ in SHOWN])
def test_a_transcript_is_what_the_command_prints(name, line, answer, tmp_path, monkeypatch, capsys):
    (tmp_path / "assets").symlink_to(ROOT / "assets")
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(line)) == 0
    assert capsys.readouterr().out == answer


@pytest.mark.parametrize("name", ["README.md", "docs/notebook.md"])
def test_the_code_of_a_page_runs_from_its_top_to_its_end(name, tmp_path, monkeypatch):
    (tmp_path / "assets").symlink_to(ROOT / "assets")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in code_blocks(ROOT / name):
        if "bertviz" in block and not all(map(importlib.util.find_spec, ("bertviz", "circuitsvis"))):
            continue
        exec(compile(block, name, "exec"), names)
    assert names["trace"].tokens.text == "hjnvt.qdgzf.aoxsb#gd"
    if "weights" in names:
        assert names["weights"][-1].argmax() == 8 and (tmp_path / "run.safetensors").is_file()


def test_the_plan_shown_is_one_and_has_every_kind():
    text = (ROOT / "docs" / "formats.md").read_text("utf-8")
    (block,) = (block for language, block in FENCE.findall(text) if language == "json")
    assert {one.kind for one in plan_from_data(json.loads(block))} == set(KINDS)


def test_the_sample_of_a_task_shown_is_one():
    text = (ROOT / "docs" / "formats.md").read_text("utf-8")
    (block,) = (block for language, block in FENCE.findall(text) if language == "jsonl")
    (sample,) = parse_task(block.encode(), "formats.md").samples
    (asked,) = sample.spans
    assert sample.prompt[asked.start : asked.stop] == "Ann is in Rome."


def test_the_queries_shown_can_be_read():
    guide = (ROOT / "docs" / "guide.md").read_text("utf-8")
    queries = [block for language, block in FENCE.findall(guide) if not language]
    assert len(queries) == 1 and all(map(parse, queries[0].splitlines()))


def test_no_definition_is_missing():
    text = methods()
    families = {score.name.split(",")[0] for score in SCORES if "." not in score.key}
    changes = {score.name for score in SCORES if score.key.startswith("change.")}
    words = [
        *(
            f"| `{one.key}` | {one.short} | `{one.hook}` | {one.unit} |"
            for one in (stage.value for stage in Stage)
        ),
        *families,
        *changes,
        *(f"`{name}`" for name in MEASURES),
        *(f"| {name} |" for name in measures.NAMES),
        *measures.OPPOSED.values(),
        *(name for name in naming.UNNAMED if name != naming.NONE),
        *(f"| `{kind}` |" for kind in KINDS),
    ]
    assert [word for word in words if word not in text] == []


def test_the_thresholds_are_those_of_the_code():
    text = methods()
    words = [
        f"below {NEAR_IDENTITY:.0%} counts as near identity".replace("%", " %"),
        f"less than {naming.FAINT * 100:g} % of the kernel's energy is *faint*",
        f"p <= {measures.LARGEST_P:g} in a **permutation test**",
        f"change places {naming.PERMUTATIONS} times",
        f"that 1 of {1 / (1 - naming.SIZE_QUANTILE):.0f} Gaussian kernels reaches",
        f"more than {measures.LARGEST_TAP * 100:g} % of the energy along it",
        f"compared with the {QUANTILE * 100:g} % quantile",
        f"clear against random rows ({CONTRAST_QUANTILE * 100:g} %)",
        f"the {sweeps.TRIED} kernels most harmful alone",
        f"or the set has {sweeps.MAX_SET};",
        f"{sweeps.RANDOM_SETS} random sets",
        f"a cosine above {CLOSE:g}",
        f"{DRAWS:,} draws",
    ]
    assert [word for word in words if word not in text] == []
