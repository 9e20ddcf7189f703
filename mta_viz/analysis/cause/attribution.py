"""What tokens and maps bring to an answer's log-probability: integrated gradients and ablation, by captum.

Values are nats of log p(answer); integrated gradients (Sundararajan et al. 2017) sum to the difference to
the baseline up to `error`, ablation does not sum to anything. How the integral is taken is
`attribution_path`'s.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from mta_viz.analysis.cause.attribution_path import Integral, integrate, normed_jump
from mta_viz.errors import PromptError, check_index
from mta_viz.model.stages import Stage
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.scoring import Question, embedded, of_embeddings, of_ids, of_maps
from mta_viz.run.tracing import Progress, Trace, ignore

Baseline = Literal["zero", "mean", "bos"] | int
ENOUGH = 0.01  # completeness error, share of the difference explained
SECONDS = 300.0
GRADIENT_BYTES = 8 * 2**30
BATCH_BYTES = 64 * 2**20
MAPS_KEPT = 8  # of each layer, for the way back
MOST_TOKENS = 64
EVEN = "even rows (each row's sum spread over the keys it sees)"
AT_ONCE = 4  # prompts of one ablation forward
JUMP = 0.5  # of the score's change, in the first 1 % of a path: more time would not help
NORM_JUMP = (
    0.1  # of the change of what the first layer sees: ten times an even path's, which no steps keep up with
)


@dataclass(frozen=True)
class Attribution:
    """`values`: nats that each token [position], group [group] or map cell [head, query, key] brings.

    `score` and `baseline_score`: log p(answer) with the real and the baseline input. Of integrated gradients,
    else None: `error`, the completeness error as a share of the difference (see `attribution_path`),
    `reached`, whether it is as small as was asked for, `steps`, the gradients computed, and `early`, the
    share of the score's change in the first 1 % of the path. `baseline`: in words. `integral`: of tokens,
    what their integrated gradients can go on from.
    """

    method: str
    baseline: str
    values: Float[Tensor, "..."]
    score: float
    baseline_score: float | None = None
    error: float | None = None
    reached: bool | None = None
    steps: int | None = None
    integral: Integral | None = field(default=None, repr=False)
    early: float | None = None

    @property
    def jumps(self) -> bool:
        """Whether the score is a jump at the baseline, so that more steps would not help."""
        return self.early is not None and self.early > JUMP


def integrated_gradients(
    model: HookedMTA,
    question: Question,
    *,
    baseline: Baseline = "mean",
    max_error: float = ENOUGH,
    max_seconds: float = SECONDS,
    progress: Progress = ignore,
    keep: Callable[[Attribution], None] | None = None,
    after: Attribution | None = None,
) -> Attribution:
    """Integrated gradients of the prompt's embeddings, summed over d_model: one value a token.

    `baseline`: all embeddings zero, the vocabulary's mean, the tokenizer's BOS, or that of one token id.
    Steps are added until the completeness error is at most `max_error`, or more would pass `max_seconds`;
    `keep` is told the result so far. `after`: an earlier result of this question, to go on from. Raises
    PromptError for a prompt whose gradients would not fit, a token that is not there, a baseline from which
    the path is ill-posed (`check_baseline`), or an `after` of another question.
    """
    at_once = _points_at_once(model, len(question.prompt) + len(question.before))
    real, base, words = check_baseline(model, question.prompt, baseline)

    def attribution(integral: Integral) -> Attribution:
        return replace(_gradients(words, integral.values[0], integral, max_error), integral=integral)

    return attribution(
        integrate(
            of_embeddings(model, question), real, base, at_once=at_once,
            max_error=max_error, max_seconds=max_seconds, progress=progress,
            keep=None if keep is None else lambda integral: keep(attribution(integral)),
            summed=lambda values: values.cpu().double().sum(-1),
            after=None if after is None else after.integral,
        )
    )  # fmt: skip


def ablate_tokens(
    model: HookedMTA,
    question: Question,
    groups: Sequence[Sequence[int]],
    *,
    baseline: int | None = None,
    progress: Progress = ignore,
) -> Attribution:
    """How much log p(answer) falls when the tokens of a group are all replaced by one: a value a group.

    `baseline`: that token's id (default: the tokenizer's BOS, else 0). Raises PromptError for groups that
    overlap or leave the prompt.
    """
    from captum.attr import FeatureAblation

    token = _token(model, baseline)
    mask = _mask(groups, len(question.prompt)).to(model.device)
    ids = torch.tensor([question.prompt], device=model.device)
    score, total, calls = of_ids(model, question), -(-(len(groups) + 1) // AT_ONCE) + 1, itertools.count(1)

    def counted(inputs: Tensor) -> Tensor:
        scores = score(inputs)
        progress(min(next(calls) / total, 1.0))
        return scores

    with torch.no_grad():
        values = FeatureAblation(counted).attribute(
            ids, baselines=token, feature_mask=mask, perturbations_per_eval=AT_ONCE
        )
        whole = float(score(ids)[0])
    first = [int((mask[0] == index).nonzero()[0]) for index in range(len(groups))]
    return Attribution("ablation", f"token {token}", values[0, first].float().cpu(), whole)


def integrated_gradients_of_maps(
    trace: Trace,
    layer: int,
    stage: Stage,
    question: Question,
    *,
    max_error: float = ENOUGH,
    max_seconds: float = SECONDS,
    progress: Progress = ignore,
) -> Attribution:
    """Integrated gradients of every head's map at one stage of a layer, from maps of zeros or even rows.

    Raw scores of zero are an even look at all keys; weights of zero take nothing from anywhere. Under a group
    norm weights of zero are no baseline (the norm undoes their size, so all that changes does at the first
    step): there every row's sum is spread evenly over the keys it sees. What enters the layer is held as it
    was. `trace`: of the prompt with `question.before` after it.
    """
    maps = _maps(trace, layer, stage, question).float()
    base, words = _map_baseline(trace, layer, stage, maps)
    integral = integrate(
        of_maps(trace, layer, stage, question), maps, base,
        at_once=_points_at_once(trace.model, len(trace.tokens)), max_error=max_error, max_seconds=max_seconds,
        progress=progress,
    )  # fmt: skip
    return _gradients(words, integral.values[0], integral, max_error)


def _map_baseline(
    trace: Trace, layer: int, stage: Stage, maps: Float[Tensor, "batch head query key"]
) -> tuple[Float[Tensor, "batch head query key"], str]:
    if stage.value.unit == "score" or trace.model.blocks[layer].attn.group_norm is None:
        return torch.zeros_like(maps), "maps of zeros"
    seen = torch.ones_like(maps[0, 0]).tril()
    return maps.sum(-1, keepdim=True) * seen / seen.sum(-1, keepdim=True), EVEN


def ablate_maps(trace: Trace, layer: int, stage: Stage, question: Question) -> Attribution:
    """How much log p(answer) falls when one head's map at a stage is all zeros: a value a head."""
    from captum.attr import FeatureAblation

    maps = _maps(trace, layer, stage, question)
    score = of_maps(trace, layer, stage, question)
    heads = torch.arange(maps.shape[1], device=maps.device)[None, :, None, None]
    with torch.no_grad():
        values = FeatureAblation(score).attribute(maps, baselines=0.0, feature_mask=heads)
        whole = float(score(maps)[0])
    by_head = values[0].flatten(1)[:, 0].float().cpu()
    return Attribution("ablation", "a map of zeros", by_head, whole)


def largest_tokens(attribution: Attribution, count: int = MOST_TOKENS) -> tuple[tuple[int], ...]:
    """The positions of largest |value|, each a group of its own, in the prompt's order: what to ablate."""
    kept = attribution.values.abs().topk(min(count, len(attribution.values))).indices.sort().values
    return tuple((position,) for position in kept.tolist())


def _gradients(baseline: str, values: Tensor, integral: Integral, max_error: float) -> Attribution:
    return Attribution(
        "integrated gradients", baseline, values.float(), integral.score, integral.baseline_score,
        integral.error, integral.error <= max_error, integral.steps, early=integral.early,
    )  # fmt: skip


def check_baseline(
    model: HookedMTA, prompt: Sequence[int], baseline: Baseline
) -> tuple[Float[Tensor, "batch position d_model"], Float[Tensor, "batch position d_model"], str]:
    """Both ends of the path, the prompt's embeddings and the baseline's, float32, and the baseline in words.

    Raises PromptError for a token that is not there, and where the norm ahead of the first layer makes more
    than a tenth of its output's change happen in the first 1 % of the path.
    """
    real = embedded(model, torch.tensor([list(prompt)])).float()
    base, words = _baseline(model, baseline)
    share = _normed_jump(model, real, base)
    if share > NORM_JUMP:
        mean = _normed_jump(model, real, _baseline(model, "mean")[0])
        other = "the vocabulary's mean, " if mean <= NORM_JUMP else ""
        raise PromptError(
            f"{words}: no baseline for this model. Its RMSNorm divides by the size of what it gets, so what "
            f"the first layer sees jumps: {share:.0%} of its change comes in the first 1 % of the path, and "
            "gradients along the rest say little of it, however many seconds they get. Choose "
            f"{other}the embedding of a token, or ablation"
        )
    return real, base.float().expand_as(real), words


def path_baseline(model: HookedMTA, prompt: Sequence[int], token: int | None = None) -> Baseline:
    """The vocabulary's mean, or where no path leads from it a token: `token`, else BOS, else 0."""
    real = embedded(model, torch.tensor([list(prompt)])).float()
    ill_posed = _normed_jump(model, real, _baseline(model, "mean")[0]) > NORM_JUMP
    return _token(model, token) if ill_posed else "mean"


def _normed_jump(model: HookedMTA, real: Float[Tensor, "batch position d_model"], base: Tensor) -> float:
    return normed_jump(base.float().expand_as(real), real, model.blocks[0].ln1.eps)


def _baseline(model: HookedMTA, baseline: Baseline) -> tuple[Float[Tensor, "d_model"], str]:
    table = model.embed.weight.detach()
    if baseline == "zero":
        return torch.zeros_like(table[0]), "embeddings of zeros"
    if baseline == "mean":
        return table.float().mean(0), "the mean embedding of the vocabulary"
    if baseline == "bos":
        if (own := bos_id(model)) is None:
            raise PromptError("this model's tokenizer has no BOS token; choose another baseline")
        return table[own], f"the embedding of BOS, token {own}"
    return table[_token(model, int(baseline))], f"the embedding of token {baseline}"


def bos_id(model: HookedMTA) -> int | None:
    """The id of the token that begins a text; None where there is none, or no tokenizer."""
    return model.tokenizer.bos_id if model.tokenizer else None


def _token(model: HookedMTA, wanted: int | None) -> int:
    own = bos_id(model)
    token = wanted if wanted is not None else own if own is not None else 0
    check_index("token", token, model.config.vocab_size)
    return token


def _mask(groups: Sequence[Sequence[int]], n_tokens: int) -> Tensor:
    """Group of each position; all positions in none share the number after the last."""
    mask = torch.full((1, n_tokens), len(groups))
    for index, group in enumerate(groups):
        if not group or min(group) < 0 or max(group) >= n_tokens:
            raise PromptError(f"group {index} is {list(group)}; expected positions of 0 to {n_tokens - 1}")
        if (mask[0, list(group)] != len(groups)).any():
            raise PromptError(f"group {index} shares a position with an earlier group")
        mask[0, list(group)] = index
    return mask


def _maps(
    trace: Trace, layer: int, stage: Stage, question: Question
) -> Float[Tensor, "batch head query key"]:
    if tuple(trace.tokens.ids) != question.prompt + question.before:
        raise PromptError("the trace is of another prompt; capture the prompt with the answer after it")
    return trace.maps(layer, stage)[None]


def _points_at_once(model: HookedMTA, n_tokens: int) -> int:
    """How many points of the integral are worth one run; raises PromptError when one is too large."""
    config = model.config
    needed = config.n_layers * config.n_heads * n_tokens**2 * 4 * MAPS_KEPT
    if needed > GRADIENT_BYTES:
        most = int((GRADIENT_BYTES / (config.n_layers * config.n_heads * 4 * MAPS_KEPT)) ** 0.5)
        raise PromptError(
            f"gradients keep every map of every layer: {needed / 2**30:.0f} GiB for {n_tokens:,} tokens. "
            f"Shorten the prompt to {most:,} tokens, or use ablation"
        )
    return max(1, BATCH_BYTES // needed)
