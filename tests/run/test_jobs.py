"""Work items here and on Ray: the same digits, a worker lost, what is refused."""

import os
import re
import signal
import sys
from argparse import ArgumentError, ArgumentParser
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from mta_viz.analysis.cause.effects import Effects
from mta_viz.analysis.cause.shapley import shapley_values
from mta_viz.analysis.cause.sweeps import measure_effects
from mta_viz.analysis.labs import text
from mta_viz.analysis.labs.conjunction import conjunction
from mta_viz.analysis.labs.evaluation import evaluate_questions
from mta_viz.analysis.labs.four_prompts import words_of, written_prompts
from mta_viz.analysis.labs.sweep import Sweep, run_sweep
from mta_viz.analysis.labs.task_samples import blocks_batches
from mta_viz.analysis.labs.text import score_passages
from mta_viz.cli import main
from mta_viz.cli.flags import add_on
from mta_viz.errors import MtaVizError, PromptError
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.jobs import OfModel, gathered, spread
from mta_viz.run.tracing import score
from mta_viz.tasks.blocks import BlockTask
from mta_viz.tasks.questions import QuestionTask
from tests.analysis.lab_models import byte_model
from tests.tiny_models import TWO_HEADS, random_weights, write_models

CROSSED = "{A} saw the {B}. Did {A?} see the {B?}?"
WORDS = "Alice, rabbit, Clara, weasel\n\nTom, cat, Joe, dog\n"


@pytest.fixture(scope="module")
def model() -> HookedMTA:
    model = HookedMTA(TWO_HEADS).requires_grad_(False).eval()
    model.load_state_dict(random_weights(TWO_HEADS, seed=3))
    return model


def work_of(model: HookedMTA, marks: Path):
    """Logits of a prompt; a prompt that begins with 3 ends its process the first time, with 4 each time."""

    @dataclass
    class Logits(OfModel):  # of a function: pickled by value, as workers cannot import tests
        model: HookedMTA

        def __call__(self, ids: list[int]) -> torch.Tensor:
            mark = marks / str(ids[0])
            if ids[0] == 4 or (ids[0] == 3 and not mark.exists()):
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            if ids[0] == 5:
                raise PromptError("five")
            return score(self.model, torch.tensor([ids]))

    return Logits(model)


@pytest.fixture(scope="module")
def two_workers():
    ray = pytest.importorskip("ray")
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


@pytest.mark.slow
@pytest.mark.usefixtures("two_workers")
def test_ray_gives_the_same_digits_though_a_worker_is_lost(model, tmp_path):
    prompts = [[first, *range(1, 9)] for first in (0, 1, 2, 3, 6, 7, 3)]
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "3").touch()
    here = dict(spread(work_of(model, tmp_path / "here"), prompts))
    there = dict(spread(work_of(model, tmp_path), prompts, "ray"))
    assert (tmp_path / "3").exists()  # it was lost
    assert sorted(there) == sorted(here) == list(range(7))
    assert all(torch.equal(there[at], here[at]) for at in here)


@pytest.mark.slow
@pytest.mark.usefixtures("two_workers")
def test_what_no_worker_survives_and_what_an_item_raises_end_the_job(model, tmp_path):
    with pytest.raises(PromptError, match=r"^five$"):
        list(spread(work_of(model, tmp_path), [[0, 1], [5, 1]], "ray"))
    with pytest.raises(MtaVizError, match="ended 3 times"):
        list(spread(work_of(model, tmp_path), [[4, 1]], "ray"))


@pytest.mark.slow
@pytest.mark.usefixtures("two_workers")
def test_measurements_on_ray_are_those_of_one_process(model):
    task = BlockTask(n_letters=3, n_query=1, n_blocks=3)
    wide = HookedMTA(replace(TWO_HEADS, vocab_size=32)).requires_grad_(False).eval()
    wide.load_state_dict(random_weights(wide.config, seed=3))
    batches = [*blocks_batches(wide, task, 6, 5), *blocks_batches(wide, task, 3, 6)]
    shared = [shapley_values(wide, batches, most=25, on=on) for on in (None, "ray")]
    assert shared[0] == shared[1]
    table = Effects("x", "blocks", 9, 5, "tiny", "0", 0.0, 0.0, ())
    how = {"heads": True, "keep": lambda so_far: None}
    effects = [measure_effects(wide, batches, table, on=on, **how) for on in (None, "ray")]
    assert len(effects[0].effects) > 4 and repr(effects[0]) == repr(effects[1])
    bytes_model = byte_model()
    sweep = Sweep((1, 2), (300,), (0, 100), samples=3)
    assert repr(run_sweep(bytes_model, sweep)) == repr(run_sweep(bytes_model, sweep, on="ray"))


@pytest.mark.slow
@pytest.mark.usefixtures("two_workers")
def test_questions_passages_and_conjunctions_on_ray_are_those_of_one_process(monkeypatch):
    model, task = byte_model(), QuestionTask("qa4", 0)
    asked = [evaluate_questions(model, task, n=5, seed=3, on=on) for on in (None, "ray")]
    assert asked[0] == asked[1] and len(asked[0].answers) == 5
    monkeypatch.setattr(text, "CHUNK", 2)
    passages = ["one two three", "", "a", "four five six seven", "eight nine"]
    scored = [score_passages(model, passages, on=on) for on in (None, "ray")]
    assert scored[0] == scored[1] and [part.number for part in scored[0].left_out] == [2, 3]
    samples = written_prompts(model.tokenizer, CROSSED, "{A} saw the {B}", words_of(WORDS))
    found = [conjunction(model, samples, on=on) for on in (None, "ray")]
    assert found[0].values.keys() == found[1].values.keys() and found[0].n == 2
    for measure, values in found[0].values.items():
        assert torch.equal(values.nan_to_num(9), found[1].values[measure].nan_to_num(9))


@pytest.mark.slow
@pytest.mark.usefixtures("two_workers")
def test_reports_on_ray_are_those_of_one_process(tmp_path):
    models, prompt = write_models(tmp_path / "models"), ("--prompt", "abc", "--samples", "2")
    paths = [str(models / name) for name in ("tiny-mta", "tiny-plain")]
    for out, where in (("here", ()), ("there", ("--on", "ray"))):
        assert main(["report", *paths, *prompt, "--out", str(tmp_path / out), *where]) == 0
    for name in ("tiny-mta.html", "tiny-plain.html"):  # pictures hold random names of their parts
        pages = [(tmp_path / out / name).read_text() for out in ("here", "there")]
        here, there = (re.sub(r"data:image[^\"]*", "", page) for page in pages)
        assert here == there and all("data:image" in page for page in pages)


@dataclass
class Doubling(OfModel):
    """Says half-way through an item how far it is."""

    model: HookedMTA

    def __call__(self, item, progress=lambda share: None, /):
        progress(0.5)
        return 2 * item


def test_gathered_results_come_in_order_with_those_there_are_and_how_far_it_is(model):
    there, shares = {2: "there"}, []
    found = list(gathered(Doubling(model), (3, 4, 5), kept=there, progress=shares.append))
    assert found == [["there"], [6, "there"], [6, 8, "there"]]
    assert there == {0: 6, 1: 8, 2: "there"}
    assert shares == pytest.approx([1 / 2, 2 / 3, 5 / 6, 1])
    assert list(gathered(Doubling(model), (3, 4, 5), kept=there)) == [[6, 8, "there"]]


def test_without_ray_and_with_a_wrong_place_it_is_said_what_to_do(model, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MtaVizError, match=r"pip install 'mta-viz\[ray\]'"):
        list(spread(work_of(model, tmp_path), [[0]], "ray"))
    parser = ArgumentParser(exit_on_error=False)
    add_on(parser)
    for place in ("ray", "ray://10.0.0.1:10001"):
        assert parser.parse_args(["--on", place]).on == place
    with pytest.raises(ArgumentError, match="ray://HOST:PORT"):
        parser.parse_args(["--on", "ray://10.0.0.1"])
