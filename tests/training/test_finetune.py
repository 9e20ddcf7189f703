"""Finetuning a random base of two layers that trains in seconds: what changes, what stays, what it says."""

import json
import math
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import kl_div

from benchmarks.corpus import write_corpus
from mta_viz.checkpoint.adapter import ADAPTER, read_adapter
from mta_viz.checkpoint.history import read_history
from mta_viz.checkpoint.native import write_native
from mta_viz.cli import main
from mta_viz.config import ModelConfig, MTAOptions
from mta_viz.errors import Cancelled, ConfigError, MtaVizError, PromptError
from mta_viz.model.transformer import HookedMTA
from mta_viz.run import tracing
from mta_viz.tasks.facts import NeedleSample
from mta_viz.tasks.needles import HELD_OUT, KNOWN
from mta_viz.tasks.words import HELD_OUT_CITIES, made_up_cities
from mta_viz.training import finetune as finetuning
from mta_viz.training import trainer
from mta_viz.training.finetune import FinetuneRecipe, finetune, trainable, with_mta
from mta_viz.training.finetune_data import FinetuneBatches, answer_batch, held_out_samples, read_text
from mta_viz.training.finetune_loss import FinetuneLoss, answer_loss, below, first_trained, time_words
from mta_viz.training.finetune_settings import FinetuneConfig, finetune_config
from mta_viz.training.recipe import PROGRESS_FILE, STATE_FILE
from mta_viz.training.trainer import Trainer, TrainingProgress, trained_parameters, weighted_loss
from tests.tiny_models import random_weights

TINY = {
    "layers": (1,), "kernel": (2, 3), "names": 1, "cities": 2, "lengths": (160,), "batch_size": 2,
    "text_rows": 1, "text_lengths": (24,), "steps": 4, "evaluation_samples": 5, "evaluation_tokens": 40,
}  # fmt: skip
KERNEL = "blocks.1.attn.kernel_pre"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finetuning") / "base"
    shapes = ModelConfig(
        d_model=16, n_layers=2, n_heads=2, n_kv_heads=1, d_head=8, d_mlp=24, vocab_size=258, tied=True
    )
    write_native(
        folder,
        shapes,
        random_weights(shapes),
        tokenizer_name="bytes",
        tokenizer_path=None,
        dtype=torch.float32,
    )
    return folder


def config_of(base: Path, **changes: Any) -> FinetuneConfig:
    return FinetuneConfig(base=str(base), **(TINY | changes))


def recipe_of(base: Path, **changes: Any) -> FinetuneRecipe:
    return FinetuneRecipe.of(config_of(base, **changes), "cpu", lambda text: None)


def trained_on(recipe: FinetuneRecipe, steps: int) -> HookedMTA:
    """The model after some steps, with nothing written."""
    model = recipe.start(torch.device("cpu"))
    with recipe.batches(torch.device("cpu")) as batches:
        Trainer(model, batches, replace(recipe.config, steps=steps), loss=recipe.loss()).run()
    return model


@pytest.fixture(scope="module")
def run(base: Path) -> tuple[Path, dict[str, Any]]:
    out = base.parent / "run"
    return out, finetune(config_of(base), out)


def of_layer_1(name: str) -> bool:
    return name == "blocks.1.ln1.weight"


@pytest.mark.parametrize(
    ("train", "may"),
    [
        ("kernels", lambda name: name == KERNEL),
        ("kernels+norms", lambda name: name == KERNEL or of_layer_1(name)),
        ("norms", of_layer_1),
        ("all", lambda name: True),
    ],
)
def test_a_step_changes_only_what_it_may(base: Path, train: str, may: Callable[[str], bool]) -> None:
    recipe = recipe_of(base, train=train)
    before = {name: value.clone() for name, value in recipe.base.state_dict().items()}
    start = {name: value.clone() for name, value in recipe.start(torch.device("cpu")).state_dict().items()}
    after = trained_on(recipe, 2).state_dict()
    changed = {name for name, value in after.items() if not torch.equal(value, start[name])}
    assert changed == {name for name in start if may(name)}
    assert all(torch.equal(value, before[name]) for name, value in recipe.base.state_dict().items())


def test_layers_that_nobody_named_are_the_usual_ones(base: Path) -> None:
    assert recipe_of(base, layers=()).config.layers == (1,)
    assert recipe_of(base, layers=(), train="norms").config.layers == (1,)
    assert recipe_of(base, layers=(), train="all").config.layers == ()


def test_a_run_leaves_an_adapter_that_opens(base: Path, run: tuple[Path, dict[str, Any]]) -> None:
    out, card = run
    assert sorted(file.name for file in out.iterdir()) == [
        "README.md",
        ADAPTER,
        "card.json",
        "kernel_history.safetensors",
        PROGRESS_FILE,
    ]
    adapter = read_adapter(out / ADAPTER)
    assert set(adapter.tensors) == {KERNEL}
    assert adapter.about.base.name == "base"
    assert adapter.about.base.sha256 == card["base"]["sha256"]
    assert adapter.about.recipe["layers"] == [1]
    assert adapter.about.recipe["base"] == "base"
    assert adapter.about.numbers["held_out"]["after"]["n"] == 5
    distance, head = (adapter.tensors[KERNEL] - identity_kernel()).flatten(1).norm(dim=1).max(dim=0)
    most = {"layer": 1, "head": int(head), "distance": float(distance)}
    assert adapter.about.numbers["most_changed"] == card["most_changed"] == most
    assert (
        f"changed most: layer 1, head {head}, {distance:.2g} from the identity"
        in (out / "README.md").read_text()
    )
    model, whole = tracing.load(out), trained_on(recipe_of(base), 4)
    ids = torch.arange(30)[None]
    assert torch.equal(tracing.score(model, ids), tracing.score(whole, ids))
    assert not torch.equal(tracing.score(model, ids), tracing.score(tracing.load(base), ids))


def identity_kernel() -> torch.Tensor:
    identity = torch.zeros(2, 2, 3)
    identity[:, 1, 1] = 1.0
    return identity


def test_the_history_begins_at_the_identity_and_ends_with_the_adapter(run: tuple[Path, Any]) -> None:
    adapter = read_adapter(run[0] / ADAPTER)
    history = read_history(run[0], adapter.config)
    assert history is not None
    assert history.steps == (0, 1, 2, 3, 4)
    assert torch.equal(history.at(0)[KERNEL], identity_kernel())
    assert torch.equal(history.at(4)[KERNEL], adapter.tensors[KERNEL])


def test_interrupted_and_resumed_equals_uninterrupted(
    base: Path, run: tuple[Path, Any], tmp_path: Path
) -> None:
    def stop(progress: TrainingProgress) -> None:
        if progress.steps_done == 2:
            raise Cancelled("stop")

    with pytest.raises(Cancelled):
        finetune(config_of(base), tmp_path / "halves", report=stop)
    state = torch.load(tmp_path / "halves" / STATE_FILE)
    assert set(state["model"]) == {KERNEL}
    assert len(state["optimizer"]["state"]) == 1
    card = finetune(config_of(base), tmp_path / "halves", resume=True)
    ours, theirs = (read_adapter(folder / ADAPTER).tensors for folder in (tmp_path / "halves", run[0]))
    assert torch.equal(ours[KERNEL], theirs[KERNEL])
    assert card["loss_curve"] == run[1]["loss_curve"]
    assert card["held_out"] == run[1]["held_out"]


def train_and_die(base: Path, out: Path) -> None:
    """As if the machine went down at the third step."""

    def die(progress: TrainingProgress) -> None:
        if progress.steps_done == 3:
            os.kill(os.getpid(), signal.SIGKILL)

    trainer.SAVE_SECONDS = 0.0
    finetune(config_of(base), out, report=die)


def test_killed_outright_it_goes_on_from_the_last_state(
    base: Path, run: tuple[Path, Any], tmp_path: Path
) -> None:
    out = tmp_path / "killed"
    process = get_context("spawn").Process(target=train_and_die, args=(base, out))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert torch.load(out / STATE_FILE)["step"] == 2
    card = finetune(config_of(base), out, resume=True)
    ours, theirs = (read_adapter(folder / ADAPTER).tensors for folder in (out, run[0]))
    assert torch.equal(ours[KERNEL], theirs[KERNEL])
    assert card["loss_curve"] == run[1]["loss_curve"]


def test_another_base_or_corpus_does_not_resume(base: Path, tmp_path: Path) -> None:
    def stop(progress: TrainingProgress) -> None:
        raise Cancelled("stop")

    with pytest.raises(Cancelled):
        finetune(config_of(base), tmp_path / "out", report=stop)
    with pytest.raises(MtaVizError, match="other settings"):
        finetune(config_of(base, corpus=str(corpus(tmp_path))), tmp_path / "out", resume=True)


def corpus(folder: Path) -> Path:
    place = folder / "corpus"
    place.mkdir()
    text = "\n\n".join(
        f"The {word} fox ran over field {n}. It was late." for n, word in enumerate("abcdefgh")
    )
    (place / "book.txt").write_text(text)
    return place


def test_perplexity_is_that_of_the_command(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = corpus(tmp_path)
    card = finetune(config_of(base, corpus=str(folder)), tmp_path / "out")
    for name, text in read_text(folder, TINY["evaluation_tokens"]).held_out.items():
        file = tmp_path / f"{name}.txt"
        file.write_text(text)
        for path, when in ((base, "before"), (tmp_path / "out", "after")):
            capsys.readouterr()
            assert main(["perplexity", str(path), "--file", str(file)]) == 0
            answer = json.loads(capsys.readouterr().out)
            assert answer["perplexity"] == pytest.approx(card["perplexity"][when][name], rel=1e-6)
    assert set(card["perplexity"]["after"]) == {"corpus", "grammar"}
    assert card["perplexity"]["after"] != card["perplexity"]["before"]


def test_code_of_a_corpus_keeps_its_lines_and_hides_no_sentences(tmp_path: Path) -> None:
    folder = corpus(tmp_path)
    (folder / "code.py").write_text("def f():\n    return 1\n\n" * 40)
    text = read_text(folder, 200)
    assert set(text.held_out) == {"corpus", "grammar", "corpus .py"}
    assert text.held_out["corpus .py"] == ("def f():\n    return 1\n\n" * 40)[len(text.others[0]) :]
    passages = [text.passage(number, 60) for number in range(0, 2000, 37)]
    assert any("def f():\n    return 1" in passage for passage in passages)
    assert not any("def" in text.passage(number, 60, prose=True) for number in range(0, 2000, 37))


@pytest.mark.parametrize("task", ["text", "pairs"])
def test_a_corpus_of_code_alone_is_read_and_the_grammar_hides_the_sentences(
    base: Path, tmp_path: Path, task: str
) -> None:
    (tmp_path / "__init__.py").write_text("")
    with pytest.raises(MtaVizError, match=r"files of the corpus .* are empty"):
        read_text(tmp_path, 200)
    (tmp_path / "code.py").write_bytes(b"x = 'caf\xe9'\n" * 60)  # Latin-1, as a .txt may be
    recipe = recipe_of(base, corpus=str(tmp_path), task=task)
    assert recipe.text.prose == () and set(recipe.text.held_out) == {"grammar", "corpus .py"}
    assert "x = 'caf\u00e9'" in recipe.text.passage(3, 40)
    finetune(replace(recipe.config, steps=1), tmp_path / "out")


def test_the_divergence_from_the_base_is_0_at_the_identity_and_grows(base: Path) -> None:
    recipe = recipe_of(base, keep="base", task="text", keep_weight=2.0)
    model = recipe.start(torch.device("cpu"))
    with recipe.batches(torch.device("cpu")) as batches:
        batch = batches(0)
    text_alone = FinetuneLoss(replace(recipe.config, keep="text"), recipe.base)
    divergence = FinetuneLoss(replace(recipe.config, task="pairs"), recipe.base)  # of a batch without answers
    with torch.no_grad():
        assert divergence(model, batch).item() == pytest.approx(0.0, abs=1e-6)
        assert text_alone(model, batch).item() > 1.0
        model.get_parameter(KERNEL).add_(0.5)
        ours, theirs = (each(batch.text[:, :-1]).log_softmax(-1) for each in (model, recipe.base))
        expected = 2.0 * kl_div(ours, theirs, log_target=True, reduction="none").sum(-1).mean()
        assert expected > 1e-3
        assert divergence(model, batch).item() == pytest.approx(expected.item(), rel=1e-4)


def test_answers_alone_count_as_over_all_logits(base: Path) -> None:
    recipe = recipe_of(base)
    batch = answer_batch(list(recipe.samples))
    expected = weighted_loss(recipe.base, batch)
    assert answer_loss(recipe.base, batch).item() == pytest.approx(expected.item(), rel=1e-5)
    ends = batch.weights.sum(1).tolist()
    assert ends == [len(sample.answer_ids) for sample in recipe.samples]


def test_layers_below_the_first_trained_make_no_gradients(base: Path) -> None:
    recipe = recipe_of(base)
    model = recipe.start(torch.device("cpu"))
    assert first_trained(model) == 1
    resid = below(model, torch.arange(9)[None])
    assert not resid.requires_grad
    torch.testing.assert_close(resid, model.blocks[0](model.embed(torch.arange(9)[None])))
    whole = trainable(with_mta(recipe.base, config_of(base, train="all")), config_of(base, train="all"))
    assert first_trained(whole) is None
    assert below(whole, torch.arange(9)[None]).requires_grad


def test_a_base_in_bfloat16_has_float32_kernels(base: Path, tmp_path: Path) -> None:
    recipe = recipe_of(base, dtype="bfloat16", train="kernels+norms")
    model = trained_on(recipe, 1)
    assert {name for name, value in model.named_parameters() if value.dtype == torch.float32} == set(
        trained_parameters(model)
    )
    assert model.blocks[0].mlp.w1.weight.dtype == torch.bfloat16
    finetune(recipe.config, tmp_path / "out")
    assert read_adapter(tmp_path / "out" / ADAPTER).tensors[KERNEL].dtype == torch.float32


def test_held_out_words_are_never_trained_on(base: Path) -> None:
    recipe = recipe_of(base, evaluation_samples=10)
    assert all(
        any(word in sample.subject for word in HELD_OUT.names)
        and any(word in sample.subject for word in HELD_OUT.cities)
        for sample in recipe.samples
    )
    with recipe.batches(torch.device("cpu")) as ahead:
        texts = [
            recipe.base.tokenizer.decode(row)
            for step in range(6)
            for row in ahead(step).answers.tokens.tolist()
        ]
    facts = [text.split("The ")[-1] for text in texts]
    assert not any(word in fact for fact in facts for word in (*HELD_OUT.names, *HELD_OUT_CITIES))


def test_made_up_cities_stand_beside_the_known_ones(base: Path) -> None:
    def cities(count: int) -> set[str]:
        recipe = recipe_of(base, made_up_cities=count, single_key=0.0)
        batches = FinetuneBatches(recipe.config, recipe.base.tokenizer, recipe.text, "pairs")
        needles = [span for step in range(20) for sample in batches.samples(step) for span in sample.needles]
        return {span.subject.split(" in ")[1] for span in needles}

    assert cities(0) <= {*KNOWN.cities}
    both = cities(len(KNOWN.cities))
    assert both & {*KNOWN.cities} and both & {*made_up_cities(len(KNOWN.cities))}
    assert both <= {*KNOWN.cities, *made_up_cities(len(KNOWN.cities))}


def test_the_first_and_the_last_fact_are_asked_for_in_two_of_five_prompts_and_by_chance(base: Path) -> None:
    recipe = recipe_of(base, names=2, single_key=0.0, batch_size=20, lengths=(400,))
    batches = FinetuneBatches(recipe.config, recipe.base.tokenizer, recipe.text, "pairs")

    def at_an_end(sample: NeedleSample) -> bool:
        starts = sorted(span.start for span in sample.needles)
        (asked,) = (span.start for span in sample.spans if span.kind == "asked")
        return asked in (starts[0], starts[-1])

    asked = [at_an_end(sample) for step in range(10) for sample in batches.samples(step)]
    # two in five and half of the others, as these prompts have four facts; drawn from all alike it were half
    assert abs(sum(asked) / len(asked) - 0.7) < 0.1


def test_a_step_reads_pieces_of_one_length_and_fewer_long_ones(base: Path) -> None:
    recipe = recipe_of(base, text_rows=4, text_lengths=(12, 12, 24))
    batches = FinetuneBatches(recipe.config, recipe.base.tokenizer, recipe.text, "pairs")
    shapes = [tuple(batches(step).text.shape) for step in range(12)]
    assert {*shapes} == {(4, 12), (2, 24)}
    assert recipe.config.n_pieces(200) == 1
    assert recipe.facts(12)["text_tokens"] == 12 * 48


def test_progress_and_kernels_can_be_followed(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finetuning, "LIVE_SECONDS", 0.0)
    out, seen = tmp_path / "out", []

    def look(progress: TrainingProgress) -> None:
        data, adapter = json.loads((out / PROGRESS_FILE).read_text()), read_adapter(out / ADAPTER)
        history = read_history(out, adapter.config)
        assert history is not None
        assert history.steps[-1] == adapter.about.numbers["steps"] == progress.steps_done
        assert torch.equal(history.at(-1)[KERNEL], adapter.tensors[KERNEL])
        seen.append(data)

    finetune(config_of(base), out, report=look)
    assert [len(row["loss_curve"]) for row in seen] == [1, 2, 3, 4]
    assert seen[0]["accuracy"][0] == [0, seen[0]["accuracy"][0][1], 5]
    assert seen[-1]["accuracy"][-1][0] >= 1
    done = json.loads((out / PROGRESS_FILE).read_text())
    assert done["state"] == "done"
    assert done["loss_curve"] == seen[-1]["loss_curve"]


def test_a_run_ends_by_the_clock_and_its_rate_falls_until_then(base: Path, tmp_path: Path) -> None:
    config = finetune_config(None, **(TINY | {"base": str(base), "max_seconds": 1.0, "steps": None}))
    assert config.steps == 100_000
    assert config.rate_factor(50, 0.25) == pytest.approx(0.75)
    assert config.rate_factor(50, 2.0) == 0.0
    seen: list[TrainingProgress] = []
    card = finetune(config, tmp_path / "out", report=seen.append)
    assert 0 < card["steps"] < 100_000
    assert seen[-1].steps_done == seen[-1].steps == card["steps"]
    assert seen[-1].seconds_left > 0  # to measure the result
    assert card["seconds"] >= 1.0
    done = json.loads((tmp_path / "out" / PROGRESS_FILE).read_text())
    assert (done["state"], done["step"], done["seconds_left"]) == ("done", card["steps"], 0.0)
    assert done["steps"] == card["steps"]
    assert not (tmp_path / "out" / STATE_FILE).exists()
    assert "Stopped early" not in (tmp_path / "out" / "README.md").read_text()


def test_everything_trained_becomes_a_whole_checkpoint(base: Path, tmp_path: Path) -> None:
    card = finetune(config_of(base, train="all", steps=1), tmp_path / "out")
    assert not (tmp_path / "out" / ADAPTER).exists()
    model = tracing.load(tmp_path / "out")
    assert model.config.kernels(1).pre == (2, 2, 3)
    assert model.tokenizer is not None
    assert not torch.equal(model.embed.weight, tracing.load(base).embed.weight)
    assert card["parameters_trained"] == sum(value.numel() for value in model.state_dict().values())


def test_norm_gains_alone_leave_no_kernels(base: Path, tmp_path: Path) -> None:
    finetune(config_of(base, train="norms", steps=1), tmp_path / "out")
    assert set(read_adapter(tmp_path / "out" / ADAPTER).tensors) == {"blocks.1.ln1.weight"}
    assert not (tmp_path / "out" / "kernel_history.safetensors").exists()


def test_runs_on_one_base_share_what_was_read_and_measured(base: Path) -> None:
    first = recipe_of(base)
    before = first.before
    other = first.under(config_of(base, train="norms", seed=3))
    assert other.before is before
    assert set(trained_parameters(other.start(torch.device("cpu")))) == {"blocks.1.ln1.weight"}
    with pytest.raises(ConfigError, match="lengths differs from the run before"):
        first.under(config_of(base, lengths=(170,)))
    with pytest.raises(ConfigError, match="there is no layer 7"):
        first.under(config_of(base, layers=(7,)))


def test_the_text_alone_can_be_learned(base: Path, tmp_path: Path) -> None:
    card = finetune(config_of(base, task="text"), tmp_path / "out")
    assert "held_out" not in card
    assert (card["prompts"], card["text_tokens"]) == (0, 4 * 24)


def test_a_file_of_prompts_is_a_task_and_its_last_tenth_is_held_out(base: Path, tmp_path: Path) -> None:
    file = tmp_path / "task.jsonl"
    lines = [json.dumps({"prompt": f"{n} and one is", "answer": str(n + 1)}) for n in range(20)]
    file.write_text("\n".join(lines))
    recipe = recipe_of(base, task=str(file))
    assert [sample.answer for sample in recipe.samples] == ["19", "20"]
    with recipe.batches(torch.device("cpu")) as ahead:
        rows = {tuple(row) for step in range(30) for row in ahead(step).answers.tokens.tolist()}
    held_out = [sample.tokens.ids + sample.answer_ids for sample in recipe.samples]
    assert not any(row[: len(ids)] == ids for row in rows for ids in held_out)
    card = finetune(recipe.config, tmp_path / "out")
    assert card["held_out"]["after"]["n"] == 2


def test_a_step_that_no_memory_holds_is_refused_before_the_first(base: Path, tmp_path: Path) -> None:
    task = tmp_path / "own.jsonl"
    lines = [{"prompt": "a b " * 50_000, "answer": "c"}, {"prompt": "a b", "answer": "c"}]
    task.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(ConfigError, match=r"a step needs about .*prompts 2 x 200,00\d tokens"):
        recipe_of(base, task=str(task))


def test_a_configuration_file_holds_everything_and_flags_come_before_it(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fields = TINY | {"base": str(base), "train": "norms", "steps": 1}
    lines = [f"{name} = {json.dumps(list(v) if isinstance(v, tuple) else v)}" for name, v in fields.items()]
    (tmp_path / "f.toml").write_text("\n".join(lines))
    flags = ["--config", str(tmp_path / "f.toml"), "--out", str(tmp_path / "out"), "--train", "kernels"]
    assert main(["finetune", *flags]) == 0
    printed = capsys.readouterr()
    card = json.loads(printed.out)
    assert card["config"] == json.loads(
        json.dumps(FinetuneConfig(**(fields | {"train": "kernels"})).__dict__)
    ) | {"base": "base"}
    assert "a step on this machine: 1 steps are about" in printed.err
    assert "perplexity" in printed.err


def with_kernels(base: Path, tmp_path: Path) -> Path:
    shapes = replace(tracing.load(base).config, mta=MTAOptions(pre_kernel=(2, 3)))
    write_native(
        tmp_path / "mta",
        shapes,
        random_weights(shapes),
        tokenizer_name="bytes",
        tokenizer_path=None,
        dtype=torch.float32,
    )
    return tmp_path / "mta"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"layers": (2,)}, "there is no layer 2; the model has layers 0 to 1"),
        ({"task": "sums"}, "task is 'sums'; expected pairs, needle, text, or a file of JSON lines"),
        ({"task": "nowhere.jsonl"}, "nowhere.jsonl is missing"),
        ({"train": "some"}, "train is 'some'; expected kernels, kernels"),
        ({"keep": "all"}, "keep is 'all'; expected text, base, none"),
        ({"corpus": "nowhere"}, "The corpus nowhere is neither a folder nor a file"),
        ({"lengths": (20,)}, "more than the length 20"),
        ({"max_seconds": 0.0}, "max_seconds is 0.0; expected a number of seconds above 0"),
        ({"train": "all", "dtype": "bfloat16"}, "trained in bfloat16 on a GPU alone; take float32 on cpu"),
        ({"made_up_cities": -1}, "made_up_cities is -1; expected at least 0"),
        ({"names": 9}, "names is 9; expected at most 5"),
        ({"kernel": (6, 601)}, "kernel is 6 x 601; expected at most 24 queries"),
        (
            {"kernel": (6, 601), "lengths": (2048,), "text_lengths": ()},
            "kernel is 6 x 601; expected at most 63 queries",
        ),
        ({"kernel": (0, 3)}, "kernel is .0, 3.; expected two whole numbers of at least 1"),
        ({"kernel": (2, 2)}, "kernel has an even key size 2"),
        ({"lengths": (10**12,)}, r"memory .prompts 2 x 1,000,000,000,000 tokens, text"),
        ({"text_lengths": (24, 10**12)}, r"tokens, text 1 x 1,000,000,000,000., and"),
        ({"text_lengths": (24, -4)}, r"used: text_lengths is \[24, -4\]; expected at least 2 tokens each$"),
        ({"evaluation_samples": 10**12}, "evaluation_samples is 1000000000000; expected at most 100,000"),
        ({"made_up_cities": 10**12}, "made_up_cities is 1000000000000; expected at most 10,000"),
        ({"learning_rate": 1e9}, "learning_rate is 1000000000.0; expected at most 1"),
    ],
)
def test_what_cannot_be_trained_is_refused_in_words(
    base: Path, tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(MtaVizError, match=words):
        finetune(config_of(base, **changes), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_base_with_kernels_an_empty_corpus_and_no_tokenizer_are_refused(base: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the model has kernels before the softmax already"):
        finetune(config_of(with_kernels(base, tmp_path)), tmp_path / "out")
    (tmp_path / "empty").mkdir()
    with pytest.raises(MtaVizError, match=r"itself holds no \.txt or \.md or \.py file"):
        finetune(config_of(base, corpus=str(tmp_path / "empty")), tmp_path / "out")
    silent = tmp_path / "silent"
    shapes = tracing.load(base).config
    write_native(
        silent, shapes, random_weights(shapes), tokenizer_name=None, tokenizer_path=None, dtype=torch.float32
    )
    with pytest.raises(PromptError, match="without its tokenizer"):
        finetune(config_of(silent), tmp_path / "out")
    with pytest.raises(ConfigError, match="no base is named"):
        finetune_config(None, layers=(1,))


def test_a_long_run_on_a_cpu_says_so_before_it_starts(base: Path) -> None:
    begun = TrainingProgress(0, 1, math.nan, 0.0, math.nan)
    hour, times = config_of(base, steps=3600), (1.0, 20.0)
    words = time_words(hour, *times, "cpu", begun)
    assert "3,600 steps are about 60 min, and 20 s to measure the result. That is long: a GPU" in words
    assert "a GPU" not in time_words(hour, *times, "cuda", begun)
    usual = config_of(base, steps=200)
    assert "200 steps are about 3 min, and 20 s" in time_words(usual, 0.9, 20.0, "cpu", begun)
    by_clock = config_of(base, steps=100_000, max_seconds=600.0)
    assert "10 min are about 666 steps" in time_words(by_clock, 0.9, 20.0, "cpu", begun)
    assert "about 20 steps, and 20 s to measure the result. So few" in time_words(
        by_clock, 30.0, 20.0, "cpu", begun
    )
    most = replace(begun, steps_done=150, seconds=560.0)  # of a run that goes on, what is left
    assert time_words(usual, 0.9, 20.0, "cpu", most).endswith(
        "50 steps are about 45 s, and 20 s to measure the result"
    )
    assert "40 s are about 40 steps" in time_words(by_clock, *times, "cpu", most)


def test_held_out_samples_are_those_of_the_seed(base: Path) -> None:
    tokenizer = tracing.load(base).tokenizer
    first, again, other = (
        [
            sample.answer
            for sample in held_out_samples(config_of(base, evaluation_seed=seed), tokenizer, "pairs")
        ]
        for seed in (0, 0, 7)
    )
    assert first == again != other


def test_a_text_without_empty_lines_has_a_paragraph_a_line(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text("First line. Its end.\nSecond line.\nThird line.\n")
    text = read_text(tmp_path / "log.txt", 100)
    assert text.prose == ("First line. Its end.\nSecond line.",)
    assert text.held_out["corpus"] == "Third line."
    (tmp_path / "log.txt").write_text("One line. Its second sentence. Its end.\n\n")
    assert read_text(tmp_path / "log.txt", 100).prose == ("One line.\nIts second sentence.",)
    (tmp_path / "log.txt").write_text("One line.\n\n")
    with pytest.raises(MtaVizError, match="holds 1 paragraphs, lines or sentences; expected at least 2"):
        read_text(tmp_path / "log.txt", 100)


def test_a_corpus_like_that_of_the_shipped_adapter_is_made_of_what_python_has(tmp_path: Path) -> None:
    write_corpus(tmp_path / "texts")
    text = read_text(tmp_path / "texts", 100)
    assert list(text.held_out) == ["corpus", "grammar", "corpus .md", "corpus .py"]
    assert all(len(part) > 500_000 for part in (*text.prose, *text.others))
