"""Running a model: generation, scoring, hooks, cancelling, and two threads on one model."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from model_cases import EXAMPLES, Case, blocks, random_case, read_case
from torch import Tensor
from transformer_lens.hook_points import HookPoint

from mta_viz.errors import Cancelled, MtaVizError, PromptError
from mta_viz.model.attention import Attention
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.devices import multiply_adds
from mta_viz.run.tracing import Continuation, capture, estimate_seconds, generate, load, run_hooks, score
from mta_viz.tokenizers.base import Tokens, tokens_from_ids

GROUPED = {
    "dim": 16,
    "n_layers": 2,
    "n_heads": 4,
    "n_kv_heads": 2,
    "multiple_of": 8,
    "vocab_size": 13,
    "rope_theta": 50.0,
    "mta": {
        "use_mta": True,
        "query_kernel_size": 3,
        "key_kernel_size": 4,
        "pad_key": "right",
        "after_sm_query_kernel_size": 2,
        "after_sm_key_kernel_size": 3,
        "head_kernel_size": 2,
        "add_gating": True,
    },
}
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]


class Stopper:
    """A tokenizer that only knows its end: ids in, `<id>` out."""

    kind, bos_id = "char", None

    def __init__(self, vocab_size: int, eos_id: int | None) -> None:
        self.vocab_size, self.eos_id = vocab_size, eos_id

    def encode(self, text: str) -> Tokens:
        return tokens_from_ids([ord(letter) - ord("a") for letter in text], vocab_size=self.vocab_size)

    def decode(self, ids: tuple[int, ...]) -> str:
        return "".join(chr(ord("a") + i) for i in ids)

    def pieces(self, ids: tuple[int, ...]) -> tuple[str, ...]:
        return tuple(f"<{i}>" for i in ids)


def _case(golden: Path, name: str) -> Case:
    return random_case(GROUPED, seed=5) if name == "grouped" else read_case(golden / name)


def _greedy(model: HookedMTA, ids: list[int], count: int) -> tuple[int, ...]:
    """Argmax of a full forward pass, one token after the other."""
    ids = list(ids)
    for _ in range(count):
        ids.append(int(model(torch.tensor([ids]))[0, -1].argmax()))
    return tuple(ids[-count:])


@pytest.mark.golden
@pytest.mark.parametrize("name", ["mta_full", "mta_headgroups2", "mta_toy", "grouped"])
def test_generation_is_greedy(golden: Path, name: str) -> None:
    model = _case(golden, name).build()
    assert generate(model, PROMPT, 32) == _greedy(model, PROMPT, 32)


@pytest.mark.golden
@pytest.mark.parametrize("start", [1, 3, 20])
@pytest.mark.parametrize("name", ["mta_full", "mta_headgroups2", "mta_toy", "grouped"])
def test_the_incremental_logits_are_those_of_a_full_forward(golden: Path, name: str, start: int) -> None:
    """Whatever tokens come: a greedy continuation of random weights soon repeats itself."""
    model, ids = _case(golden, name).build(), [(5 * i + i * i + 2) % 13 for i in range(36)]
    whole = model(torch.tensor([ids]))[0]
    with torch.no_grad():
        run = Continuation(model, torch.tensor(ids[:start]))
        for position in range(start, 36):
            torch.testing.assert_close(
                run.logits, whole[position - 1], rtol=0, atol=1e-5 * float(whole.abs().max())
            )
            run.append(ids[position])


@EXAMPLES
@given(block=blocks(), start=st.integers(1, 8))
def test_incremental_logits_of_every_option_are_those_of_a_full_forward(
    block: dict[str, Any], start: int
) -> None:
    model, ids = random_case(block, seed=7).build(), [(5 * i + i * i + 2) % 13 for i in range(16)]
    with torch.no_grad():
        run = Continuation(model, torch.tensor(ids[:start]))
        for position in range(start, 16):
            whole = model(torch.tensor([ids[:position]]))[0, -1]
            apart = (run.logits - whole).abs().max()
            assert apart <= 1e-5 * whole.abs().max().clamp_min(1.0)
            run.append(ids[position])


def test_generation_stops_at_eos_without_it() -> None:
    model = random_case(GROUPED, seed=5).build()
    free = generate(model, PROMPT, 20)
    stop = next(i for i in range(1, 20) if free[i] not in free[:i])
    model.tokenizer = Stopper(13, eos_id=free[stop])
    assert generate(model, PROMPT, 20) == free[:stop]


def test_generation_stops_when_the_first_token_is_eos() -> None:
    model = random_case(GROUPED, seed=5).build()
    model.tokenizer = Stopper(13, eos_id=generate(model, PROMPT, 1)[0])
    assert generate(model, PROMPT, 20) == ()


def test_generation_counts_and_reports() -> None:
    model, shares = random_case(GROUPED, seed=5).build(), []
    assert generate(model, PROMPT, 0) == ()
    assert len(generate(model, PROMPT, 4, progress=shares.append)) == 4
    assert shares == [0.25, 0.5, 0.75, 1.0]


@pytest.mark.parametrize(("broken_after", "said"), [(0, "new token 1 hold NaN"), (2, "new token 3 hold NaN")])
def test_generation_ends_with_an_error_where_the_logits_are_nan(
    monkeypatch: pytest.MonkeyPatch, broken_after: int, said: str
) -> None:
    model, steps = random_case(GROUPED, seed=5).build(), iter(range(20))
    whole = model.logits
    bad = torch.full((13,), torch.nan)
    monkeypatch.setattr(model, "logits", lambda resid: whole(resid) if next(steps) < broken_after else bad)
    with pytest.raises(MtaVizError, match=said):
        generate(model, PROMPT, 5)


@pytest.mark.parametrize("kind", [np.array, torch.tensor])
def test_ids_may_be_an_array_or_a_tensor(kind: Callable[[list[int]], object]) -> None:
    model = random_case(GROUPED, seed=5).build()
    assert capture(model, kind(PROMPT)).tokens.ids == tuple(PROMPT)
    assert generate(model, kind(PROMPT), 3) == generate(model, PROMPT, 3)


def test_text_needs_a_tokenizer_and_ids_must_exist() -> None:
    model = random_case(GROUPED).build()
    with pytest.raises(PromptError, match="tokenizer"):
        capture(model, "abc")
    with pytest.raises(PromptError, match="13 at 2"):
        capture(model, [1, 2, 13])
    with pytest.raises(PromptError, match=r"no hook named blocks\.9\.hook_z"):
        run_hooks(model, PROMPT, ["blocks.9.hook_z", "hook_embed"])
    model.tokenizer = Stopper(13, None)
    assert capture(model, "abc").tokens.ids == (0, 1, 2)


def test_scores_are_the_models_logits() -> None:
    model = random_case(GROUPED).build()
    batch = torch.tensor([PROMPT, PROMPT[::-1]])
    scores = score(model, batch)
    assert torch.allclose(scores, model(batch), atol=2e-6)
    assert not score(random_case(GROUPED).build().requires_grad_(True), batch).requires_grad


def test_run_hooks_drops_the_batch_axis() -> None:
    model = random_case(GROUPED).build(torch.bfloat16)
    found = run_hooks(model, PROMPT, ["blocks.1.attn.hook_pattern", "hook_embed"])
    assert {name: tuple(value.shape) for name, value in found.items()} == {
        "logits": (8, 13),
        "blocks.1.attn.hook_pattern": (4, 8, 8),
        "hook_embed": (8, 16),
    }
    assert {value.dtype for value in found.values()} == {torch.float32}


def test_an_estimate_grows_with_the_work() -> None:
    model, lengths = random_case(GROUPED, seed=5).build(), (1000, 2000)
    seconds = [estimate_seconds(model, n_tokens) for n_tokens in lengths]
    work = [multiply_adds(model.config, n_tokens) for n_tokens in lengths]
    assert seconds[1] / seconds[0] == pytest.approx(work[1] / work[0])


def test_progress_rises_to_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Attention, "slab_rows", lambda *_: 2)
    shares: list[float] = []
    capture(random_case(GROUPED).build(), PROMPT, progress=shares.append)
    assert shares == sorted(shares) and len(shares) == 8
    assert shares[-1] == pytest.approx(1.0)


def test_a_cancelled_run_leaves_the_model_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Attention, "slab_rows", lambda *_: 3)
    model = random_case(GROUPED).build()
    expected = capture(model, PROMPT).logits()

    def cancel(share: float) -> None:
        if share > 0.4:
            raise Cancelled("stopped")

    for run in (capture, lambda *args, **kw: generate(*args, 20, **kw)):
        with pytest.raises(Cancelled):
            run(model, PROMPT, progress=cancel)
    assert _lock_is_free(model)
    assert torch.equal(capture(model, PROMPT).logits(), expected)
    assert not any(m._forward_hooks for m in model.modules() if isinstance(m, HookPoint))


def _lock_is_free(model: HookedMTA) -> bool:
    """Whether another thread can take the model's lock."""
    taken: list[bool] = []

    def take() -> None:
        if model.lock.acquire(timeout=5):
            taken.append(True)
            model.lock.release()

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    return taken == [True]


def test_two_threads_never_see_each_others_hooks() -> None:
    """One thread ablates a head under the lock, the others trace: their numbers stay the clean ones."""
    model = random_case(GROUPED, seed=5).build()
    hook = "blocks.0.attn.hook_pattern"
    clean = run_hooks(model, PROMPT, [hook])
    ids = torch.tensor([PROMPT])

    def ablate(pattern: Tensor, hook: HookPoint) -> Tensor:
        return torch.zeros_like(pattern)

    with torch.no_grad():
        ablated = model.run_with_hooks(ids, fwd_hooks=[(hook, ablate)])[0]
    assert not torch.allclose(ablated, clean["logits"], atol=1e-3)
    wrong: list[str] = []

    def intervening() -> None:
        for _ in range(15):
            with model.lock, torch.no_grad():
                logits = model.run_with_hooks(ids, fwd_hooks=[(hook, ablate)])[0]
            wrong.extend(["ablation"] * (not torch.allclose(logits, ablated, atol=1e-5)))

    def looking() -> None:
        for _ in range(15):
            found, trace = run_hooks(model, PROMPT, [hook]), capture(model, PROMPT)
            wrong.extend(["keys"] * (set(found) != {"logits", hook}))
            for logits in (found["logits"], trace.logits(), score(model, ids)[0]):
                wrong.extend(["clean"] * (not torch.allclose(logits, clean["logits"], atol=1e-5)))

    threads = [threading.Thread(target=work, daemon=True) for work in (intervening, looking, looking)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert not any(thread.is_alive() for thread in threads), "a lock was never given back"
    assert wrong == []


@pytest.mark.golden
@pytest.mark.parametrize("name", ["mta_full", "mta_dcp"])
def test_a_loaded_folder_gives_the_golden_logits(golden: Path, name: str) -> None:
    from safetensors.torch import load_file

    expected = load_file(golden / name / "golden.safetensors")
    model = load(golden / name)
    torch.testing.assert_close(score(model, expected["tokens"]), expected["logits"], rtol=0, atol=1e-4)
    assert model.source.dtype == "float32" and model.tokenizer.kind == "bytes"
