"""Why one cell has its value: the exact sum over kernel taps or heads, from final weights to raw scores.

Owns taking a value apart, for every stage of every layer. The order of the steps is `steps.py`'s,
the values are the trace's. Depth scale, group norm and gate act on the weighted values, after
the last T x T stage, and so are in no sum here.
"""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from mta_viz.analysis.attention.changes import Step, layer_steps
from mta_viz.analysis.attention.terms import (
    Convolved,
    Decomposition,
    Mixed,
    Passed,
    Scored,
    Softmaxed,
    State,
    Term,
    Window,
    largest_first,
    relative_error,
)
from mta_viz.analysis.kernels.kernels import kernel_offsets
from mta_viz.config import LayerKernels, ModelConfig
from mta_viz.errors import PromptError
from mta_viz.model.stages import Stage
from mta_viz.run.tracing import Trace

_LACKS = {
    Stage.KQ: "no key-query kernel before the softmax",
    Stage.MIX: "no head mixing before the softmax",
    Stage.SOFTMAX_KQ: "no key-query kernel after the softmax",
}
_INSTEAD = {
    Stage.KQ: "the score is q·k/√d of the two tokens",
    Stage.MIX: "every head keeps its own score",
    Stage.SOFTMAX_KQ: "the softmax is not convolved",
}


def decompose(trace: Trace, layer: int, stage: Stage, head: int, query: int, key: int) -> Decomposition:
    """Take the value of one cell apart: `Convolved`, `Mixed`, `Softmaxed`, `Scored` or `Passed`.

    Sources are what `trace.map` gives one stage earlier, in the unit of that stage (score or weight). Raises
    PromptError for a cell that is masked or not in the prompt, and for a stage the layer does not compute.

    >>> why = mta_viz.decompose(trace, 3, mta_viz.Stage.KQ, head=1, query=20, key=8)
    >>> len(why.terms), why.residual < 1e-3  # computed in half precision
    (18, True)
    """
    step = _checked_step(trace, layer, stage, head, query, key)
    return _Cell(trace, layer, step, head, query, key).decompose()


def chain(trace: Trace, layer: int, head: int, query: int, key: int) -> dict[Stage, float]:
    """The cell at every stage of the layer, final weights first and raw scores last.

    Raises PromptError as `decompose`.
    """
    _checked_step(trace, layer, Stage.RAW, head, query, key)
    rows = _rows(trace, layer, range(query, query + 1))
    return {stage: float(rows[stage][head, 0, key]) for stage in reversed(rows)}


class _Cell:
    """One cell of one stage, with the step that made it and the rows that were read for it."""

    def __init__(self, trace: Trace, layer: int, step: Step, head: int, query: int, key: int) -> None:
        self.trace, self.step = trace, step
        self.layer, self.head, self.query, self.key = layer, head, query, key
        self.weights = self._step_weights()
        reach = self.weights.shape[1] if step.operation == "convolution" else 1
        self.first = max(query - reach + 1, 0)
        self.found = _rows(trace, layer, range(self.first, query + 1))
        self.value = float(self.found[step.after][head, -1, key])

    def _step_weights(self) -> Tensor:
        """The kernels or mixing of the step as the model computes with them: rounded to its dtype."""
        attention = self.trace.model.blocks[self.layer].attn
        parameters = {
            Stage.KQ: attention.kernel_pre,
            Stage.MIX: attention.head_pre,
            Stage.SOFTMAX_KQ: attention.kernel_post,
            Stage.PATTERN: attention.head_post,
        }
        weights = parameters.get(self.step.after)
        if weights is None:
            return torch.ones(1)
        return weights.detach().to(self.trace.model.dtype).float().cpu()

    def decompose(self) -> Decomposition:
        """The decomposition that fits the step."""
        made = {
            "product": self._scored,
            "convolution": self._convolved,
            "mixing": self._mixed,
            "softmax": self._softmaxed,
            "nothing": self._passed,
        }
        return made[self.step.operation]()

    @property
    def _sources(self) -> Float[Tensor, "head row column"]:
        """The stage before, rows `first`..query over keys 0..query, float32 on the CPU."""
        if self.step.before is None:
            raise ValueError(f"nothing comes before {self.step.after}")
        return self.found[self.step.before]

    def _facts(self, terms: tuple[Term, ...], residual: float) -> dict[str, Any]:
        return {
            "layer": self.layer,
            "stage": self.step.after,
            "head": self.head,
            "query": self.query,
            "key": self.key,
            "value": self.value,
            "stage_before": self.step.before,
            "terms": terms,
            "residual": residual,
        }

    def _sum(self, terms: list[Term]) -> dict[str, Any]:
        return self._facts(largest_first(terms), relative_error(self.value, (t.product for t in terms)))

    def _convolved(self) -> Decomposition:
        window = self._window(self.weights[self.head])
        return Convolved(**self._sum(self._taps(window)), window=window)

    def _window(self, kernel: Float[Tensor, "c_q c_k"]) -> Window:
        offsets = kernel_offsets(self.trace.model.config, *kernel.shape)
        queries = torch.tensor(offsets.query)[:, None] + self.query
        keys = torch.tensor(offsets.key)[None, :] + self.key
        outside = (queries < 0) | (keys < 0) | (keys >= len(self.trace.tokens))
        sources = self._around(int(keys[0, 0]), kernel.shape)
        return Window(offsets, kernel, sources, kernel * sources, outside, (keys > queries) & ~outside)

    def _around(self, first_key: int, shape: torch.Size) -> Float[Tensor, "c_q c_k"]:
        """What the convolution reads: 0 before the prompt, and 0 for keys after their query."""
        last_key = first_key + shape[1]
        there = self._sources[self.head, :, max(first_key, 0) : last_key]
        after = max(last_key - self.query - 1, 0)
        return pad(there, (max(-first_key, 0), after, shape[0] - len(there), 0))

    def _taps(self, window: Window) -> list[Term]:
        """One term a tap; products in float64, or their own rounding would be in the residual."""
        kernel, sources = window.kernel.tolist(), window.sources.tolist()
        return [
            Term(
                self.head,
                self.query + query,
                self.key + key,
                _state(bool(window.outside[a, b]), bool(window.future[a, b])),
                kernel[a][b],
                sources[a][b],
                kernel[a][b] * sources[a][b],
            )
            for a, query in enumerate(window.offsets.query)
            for b, key in enumerate(window.offsets.key)
        ]

    def _mixed(self) -> Decomposition:
        size = self.weights.shape[1]
        group, target = divmod(self.head, size)
        weights = self.weights[group, target].tolist()
        return Mixed(**self._sum([self._same_cell(s, w) for s, w in enumerate(weights, start=group * size)]))

    def _passed(self) -> Decomposition:
        return Passed(**self._sum([self._same_cell(self.head, 1.0)]))

    def _same_cell(self, head: int, weight: float) -> Term:
        """A term that reads the same query and key of some head."""
        source = float(self._sources[head, -1, self.key])
        return Term(head, self.query, self.key, "inside", weight, source, weight * source)

    def _softmaxed(self) -> Decomposition:
        scores = self._sources[self.head, -1].double()
        score, log_normaliser = float(scores[self.key]), float(scores.logsumexp(0))
        rival, margin = _rival(scores, self.key)
        # An error of a weight counts against the row's sum, which is 1: tiny weights have no digits to lose.
        residual = relative_error(self.value, (math.exp(score - log_normaliser),), scale=1.0)
        facts = self._facts((), residual)
        return Softmaxed(**facts, score=score, log_normaliser=log_normaliser, rival=rival, margin=margin)

    def _scored(self) -> Decomposition:
        qkv, config = self.trace.project(self.layer), self.trace.model.config
        q = qkv.q[0, self.query, self.head].double()
        k = qkv.k[0, self.key, self.head // (config.n_heads // config.n_kv_heads)].double()
        norms = float(q.norm()), float(k.norm())
        cosine = float(q @ k) / (norms[0] * norms[1]) if all(norms) else 0.0
        residual = relative_error(self.value, (q * k / config.d_head**0.5).tolist())
        facts = self._facts((), residual)
        return Scored(**facts, query_norm=norms[0], key_norm=norms[1], cosine=cosine, d_head=config.d_head)


def _rows(trace: Trace, layer: int, queries: range) -> dict[Stage, Float[Tensor, "head row column"]]:
    """Every stage of some rows over keys 0..last row, from one pass: what was read, and what it gave."""
    parts = [slabs for _, slabs in trace.stage_slabs(layer, queries)]
    return {
        stage: torch.cat(
            [pad(part[stage], (0, queries.stop - part[stage].shape[2])) for part in parts], dim=1
        ).cpu()
        for stage in parts[0]
    }


def _state(outside: bool, future: bool) -> State:
    if outside:
        return "outside"
    return "future" if future else "inside"


def _rival(scores: Float[Tensor, " key"], key: int) -> tuple[int | None, float | None]:
    """The key of the largest other score, and how far the score of `key` lies above it."""
    if len(scores) < 2:
        return None, None
    others = scores.index_fill(0, torch.tensor([key], device=scores.device), -torch.inf)
    rival = int(others.argmax())
    return rival, float(scores[key] - scores[rival])


def _checked_step(trace: Trace, layer: int, stage: Stage, head: int, query: int, key: int) -> Step:
    """The step that makes the stage; PromptError in the words of the page when there is no such cell."""
    config, n_tokens = trace.model.config, len(trace.tokens)
    counts = (("layer", layer, config.n_layers), ("head", head, config.n_heads))
    for name, index, count in (*counts, ("query", query, n_tokens), ("key", key, n_tokens)):
        if not 0 <= index < count:
            raise PromptError(f"{name} {index} does not exist; there are {count}, counted from 0")
    if key > query:
        raise PromptError(
            f"Key {key} comes after query {query}. The model never sees it: weight is 0 by the mask."
        )
    steps = {step.after: step for step in layer_steps(config.kernels(layer))}
    if stage not in steps:
        raise PromptError(_absent(config, layer, stage))
    return steps[stage]


def _absent(config: ModelConfig, layer: int, stage: Stage) -> str:
    having = [str(at) for at in range(config.n_layers) if _has(config.kernels(at), stage)]
    where = f"Layers with one: {', '.join(having)}." if having else "No layer of this model has one."
    return f"Layer {layer} has {_LACKS[stage]}; {_INSTEAD[stage]}. {where}"


def _has(kernels: LayerKernels, stage: Stage) -> bool:
    return any(step.after is stage for step in layer_steps(kernels))
