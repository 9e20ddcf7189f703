"""What a model's plain twin makes of the same prompt, and where the twin comes from."""

import math
from dataclasses import dataclass, replace

from mta_viz.analysis.cause.answers import Answer, AnswerMeter, Standing
from mta_viz.analysis.cause.effects import Absent
from mta_viz.checkpoint.relatives import plain_twin
from mta_viz.errors import MtaVizError
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.tracing import capture, generate, load
from mta_viz.tokenizers.base import Tokens


@dataclass(frozen=True)
class TwinAnswer:
    """The plain twin on the same prompt.

    `writes`: the likeliest continuation, as long as the model's answer; `own`: how that stands,
    `standing`: how the model's answer does.
    """

    name: str
    writes: str
    own: Standing
    standing: Standing

    def words(self, answer: str) -> str:
        """What it writes, and how the model's `answer` stands with it."""
        writes = f"{self.name} writes “{self.writes.strip()}” (probability {self.own.probability:.3f})"
        return f"{writes}; it gives “{answer}” {self.standing.words()}"


def written(model: HookedMTA, ids: tuple[int, ...]) -> str:
    """The text of ids; the ids themselves where there is no tokenizer."""
    return model.tokenizer.decode(ids) if model.tokenizer else " ".join(map(str, ids))


def twin_of_model(model: HookedMTA) -> HookedMTA | Absent:
    """The base of an adapter, else the plain twin beside the model's folder, on its device in its dtype.

    `Absent` says why there is none.
    """
    if not any(model.config.kernels(layer).any for layer in range(model.config.n_layers)):
        return Absent("This model is plain itself.")
    source = model.source
    place = None if source is None else source.base or plain_twin(source.path)
    if place is None:
        return Absent("No plain twin lies beside this model.")
    try:
        return load(place, device=str(model.device), dtype=model.dtype)
    except MtaVizError as error:
        return Absent(f"The plain twin cannot be read: {error}")


def twin_answer(twin: HookedMTA | Absent | None, tokens: Tokens, answer: Answer) -> TwinAnswer | Absent:
    """What the twin makes of the same tokens."""
    if twin is None or isinstance(twin, Absent):
        return twin or Absent("No plain twin was given.")
    if tokens.text is not None and (
        twin.tokenizer is None or twin.tokenizer.encode(tokens.text).ids != tokens.ids
    ):
        return Absent("The plain twin has another vocabulary.")
    try:
        run = capture(twin, tokens)
        ids = generate(twin, tokens, len(answer.ids))
        own = AnswerMeter(run, replace(answer, ids=ids)).standing() if ids else Standing(math.nan, None)
        standing = AnswerMeter(run, answer).standing()
    except MtaVizError as error:
        return Absent(f"The plain twin cannot run this prompt: {error}")
    name = "plain twin" if twin.source is None else twin.source.path.absolute().name
    return TwinAnswer(name, written(twin, ids), own, standing)
