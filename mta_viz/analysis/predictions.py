"""The most probable next tokens after a position."""

from dataclasses import dataclass

from mta_viz.errors import MtaVizError, PromptError
from mta_viz.tracing import Trace


@dataclass(frozen=True)
class Prediction:
    """One candidate: vocabulary index, the label shown for it, probability 0..1."""

    id: int
    piece: str
    probability: float


def top_tokens(trace: Trace, position: int, k: int = 10) -> tuple[Prediction, ...]:
    """The `k` most probable tokens after `position` (0..T-1), most probable first.

    Raises PromptError for a position outside the prompt, MtaVizError for logits that are NaN or
    infinite, of which no probability can be told.
    """
    if not 0 <= position < len(trace.tokens):
        raise PromptError(f"position {position} is not in the prompt; it has 0..{len(trace.tokens) - 1}")
    logits = trace.logits(slice(position, position + 1))[0].float()
    if not logits.isfinite().all():
        raise MtaVizError(
            f"the logits after position {position} hold NaN or inf, so there is no next token; "
            "look at the health card for the weights that are NaN or infinite"
        )
    probabilities, ids = logits.softmax(0).topk(min(k, len(logits)))
    found = tuple(int(index) for index in ids)
    return tuple(
        Prediction(index, piece, float(probability))
        for index, piece, probability in zip(found, _pieces(trace, found), probabilities, strict=True)
    )


def _pieces(trace: Trace, ids: tuple[int, ...]) -> tuple[str, ...]:
    tokenizer = trace.model.tokenizer
    return tokenizer.pieces(ids) if tokenizer else tuple(f"<{index}>" for index in ids)
