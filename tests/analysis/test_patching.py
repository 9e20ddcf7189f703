"""Patched runs: the same as hooks set by hand, in maps too, and nothing left on the original."""

import pytest
import torch

from mta_viz.errors import Cancelled, ConfigError, PromptError
from mta_viz.model.editing import edited
from mta_viz.model.interventions import HOOKS, KernelToIdentity, PatchHead
from mta_viz.model.stages import Stage
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.tracing import capture, generate, operated, run_hooks, score
from tests.tiny_models import FULL, config, random_weights

IDS = (5, 3, 8, 1, 9, 2, 7, 7, 4, 0, 6, 3)
OTHER = (5, 3, 8, 1, 9, 2, 0, 7, 4, 0, 6, 11)
LAYER, HEAD = 1, 2  # a layer with every stage


@pytest.fixture(scope="module")
def model() -> HookedMTA:
    """4 layers x 4 heads, kernels in layers 1 and 3, group norm and gate."""
    made = HookedMTA(config(FULL, 16)).requires_grad_(False).eval()
    made.load_state_dict(random_weights(made.config))
    return made


@pytest.fixture(params=[stage for stage in HOOKS if stage not in ("raw2", "sm2")])
def patch(request: pytest.FixtureRequest) -> PatchHead:
    """A patch at every stage in turn."""
    return PatchHead(LAYER, HEAD, request.param, OTHER)


def by_hand(model: HookedMTA, patch: PatchHead, wanted: str) -> dict[str, torch.Tensor]:
    """Logits and one activation of a run in which a hook puts the other run's values in place."""
    name = f"blocks.{patch.layer}.attn.{patch.hook}"
    kept = {}

    def put(value: torch.Tensor, hook: object) -> torch.Tensor:
        place = (0, slice(None), patch.head) if patch.stage == "z" else (0, patch.head)
        value = value.clone()
        value[place] = source[0, :, patch.head] if patch.stage == "z" else source[0, patch.head]
        return value

    def keep(value: torch.Tensor, hook: object) -> None:
        kept["there"] = value[0]

    with torch.no_grad():
        source = model.run_with_cache(torch.tensor([OTHER]))[1][name]
        hooks = [(name, put), (wanted, keep)]
        kept["logits"] = model.run_with_hooks(torch.tensor([IDS]), fwd_hooks=hooks)[0]
    return kept


def test_a_patched_run_equals_hooks_set_by_hand(model: HookedMTA, patch: PatchHead):
    want = by_hand(model, patch, Stage.PATTERN.hook_name(LAYER))
    made = operated(model, [patch], len(IDS))
    got = score(made, torch.tensor([IDS]))[0]
    torch.testing.assert_close(got, want["logits"])
    assert not torch.allclose(got, score(model, torch.tensor([IDS]))[0], atol=1e-4)


def test_the_maps_of_a_patched_trace_are_those_of_its_run(model: HookedMTA, patch: PatchHead):
    want = by_hand(model, patch, Stage.PATTERN.hook_name(LAYER))
    trace = capture(operated(model, [patch], len(IDS)), IDS)
    torch.testing.assert_close(trace.logits(), want["logits"])
    torch.testing.assert_close(trace.maps(LAYER, Stage.PATTERN), want["there"])
    row = trace.map(LAYER, Stage.PATTERN, HEAD, queries=slice(9, 10))
    torch.testing.assert_close(row, want["there"][HEAD, 9:10])


def test_slabs_and_continuations_are_patched_alike(model: HookedMTA, patch: PatchHead, monkeypatch):
    made = operated(model, [patch], len(IDS))
    whole, new = score(made, torch.tensor([IDS])), generate(made, IDS, 3)
    monkeypatch.setitem(__import__("mta_viz.model.attention").model.attention.SLAB_CELLS, "cpu", 1)
    monkeypatch.setattr(type(made.blocks[0].attn), "slab_rows", lambda *_: 2)
    torch.testing.assert_close(score(made, torch.tensor([IDS])), whole)
    longer = torch.tensor([(*IDS, *new[:2])])
    assert int(score(made, longer)[0, -1].argmax()) == new[2]


def test_nothing_stays_on_the_original_also_when_a_run_fails_half_way(model: HookedMTA, patch: PatchHead):
    before = {name: value.clone() for name, value in model.state_dict().items()}
    want = score(model, torch.tensor([IDS]))
    made = operated(model, [patch, KernelToIdentity(1, 0, "pre")], len(IDS))

    def stop(share: float) -> None:
        if share > 0.4:
            raise Cancelled("stopped")

    with pytest.raises(Cancelled):
        capture(made, IDS, progress=stop)
    assert torch.equal(score(model, torch.tensor([IDS])), want)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(not block.attn.patches for block in model.blocks)
    assert not any(point._forward_hooks for one in (model, made) for point in one.hook_dict.values())


def test_a_patch_from_the_same_prompt_changes_nothing(model: HookedMTA):
    plan = [PatchHead(layer, head, "z", IDS) for layer in range(4) for head in range(4)]
    torch.testing.assert_close(
        score(operated(model, plan, len(IDS)), torch.tensor([IDS])), score(model, torch.tensor([IDS]))
    )


def test_the_source_is_the_original_models_run(model: HookedMTA):
    patch = PatchHead(3, 0, "z", OTHER)
    made = operated(model, [KernelToIdentity(1, 0, "pre"), patch], len(IDS))
    name = "blocks.3.attn.hook_z"
    got, want = run_hooks(made, IDS, [name])[name], run_hooks(model, OTHER, [name])[name]
    torch.testing.assert_close(got[:, 0], want[:, 0])
    assert not torch.allclose(got[:, 1], want[:, 1], atol=1e-4)


def test_prompts_of_other_lengths_and_models_without_the_other_run_are_refused(model: HookedMTA):
    with pytest.raises(PromptError, match="has 2 tokens, this one 12"):
        operated(model, [PatchHead(0, 0, "z", (1, 2))], len(IDS))
    with pytest.raises(ConfigError, match="the other prompt was not run"):
        edited(model, [PatchHead(0, 0, "z", OTHER)])
