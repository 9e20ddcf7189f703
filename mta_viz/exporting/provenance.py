"""Where a figure comes from: its name, its parameters, and the run it is drawn from.

A `Provenance` is a JSON object; `carriers` puts it into pictures and reads it from them, tables have it as
a file beside them. A PDF of many figures holds a list, one for each page. `again` makes the figure from it.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pydantic import TypeAdapter, ValidationError

from mta_viz.checkpoint.locate import sha256
from mta_viz.checkpoint.types import Source as Origin
from mta_viz.errors import MtaVizError
from mta_viz.exporting.pictures import limits
from mta_viz.figures.base import Drawn, Source
from mta_viz.model.intact import weights_of
from mta_viz.model.plans import plan_as_data
from mta_viz.printed import safe
from mta_viz.run.files import check_as_read
from mta_viz.version import VERSION

FORMAT = "mta_viz figure 2"
OLDER = "mta_viz figure 1"  # it named a page's address; `again` translates it
MANY = "mta_viz figures 1"  # of a file with a figure on each of its pages
MAX_TEXT = 8 * 2**20  # characters
COMMAND = "python -m mta_viz figure --from {name}"
Range = tuple[int, int]


@dataclass(frozen=True)
class RunOf:
    """A model, and the prompt that was run: a text, token ids or None.

    `checkpoint` is a name, `sha256` of the weights, `step` the training step of a run folder; `tokens` as
    they are shown; `interventions` a plan as JSON.
    """

    checkpoint: str = ""
    sha256: str = ""
    step: int | None = None
    dtype: str = "float32"
    prompt: str | tuple[int, ...] | None = None
    tokens: tuple[str, ...] = ()
    interventions: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class Provenance:
    """One figure. `beside` is the other run of a comparison; `limits` are the ends of its colour scales.

    `size`, `colours`, `queries` and `keys` (token ranges, ends excluded, None: all) say how it was exported;
    `page` and `view` are those of a file saved before figures had names.
    """

    figure: str
    parameters: dict[str, Any] = field(default_factory=dict)
    run: RunOf = RunOf()
    beside: RunOf | None = None
    numbering: int = 0
    limits: tuple[tuple[float, float], ...] = ()
    caption: str = ""
    size: str = "screen"
    colours: str = "colour"
    queries: Range | None = None
    keys: Range | None = None
    version: str = VERSION
    page: str = ""
    view: dict[str, str] = field(default_factory=dict)

    def text(self, name: str = "FILE") -> str:
        """As JSON; `name` is that of the file that carries it, for the command that makes it again."""
        head = {"format": FORMAT, "command": COMMAND.format(name=name)}
        data = asdict(self)
        if not self.page:
            del data["page"], data["view"]
        return safe(json.dumps(head | data, ensure_ascii=False))


def provenance_of(figure: Drawn, digest: Callable[[Origin], str] | None = None) -> Provenance:
    """Where a drawn figure comes from. `digest` gives the sha256 of a model's weights, where it is known.

    Raises MtaVizError where the weights are no longer those that were read: their sha256 would be another's.
    """
    known = digest or (lambda origin: sha256(origin.path))
    source = figure.source
    return Provenance(
        figure.spec.name,
        figure.spec.parameters(),
        _run_of(source, known),
        None if source.beside is None else _run_of(source.beside, known),
        source.numbering,
        () if figure.figure is None else limits(figure.figure),
        figure.caption,
    )


def _run_of(source: Source, digest: Callable[[Origin], str]) -> RunOf:
    origin, dtype = source.model.source, str(source.model.dtype).removeprefix("torch.")
    plan = tuple(plan_as_data(source.model.plan))
    model = RunOf(interventions=plan, dtype=dtype)
    if origin is not None:
        ran_with = source.run.ran_with if source.run else None
        check_as_read(source.model, (ran_with or weights_of(source.model)).marks)
        model = replace(model, checkpoint=source.name, sha256=digest(origin), step=origin.step)
    if source.run is None:
        return model
    tokens = source.run.tokens
    return replace(
        model, prompt=tokens.ids if tokens.text is None else tokens.text, tokens=tuple(tokens.pieces)
    )


def many_text(pages: Sequence[Provenance], name: str = "FILE") -> str:
    """Those of a file with a figure on each of its pages, as JSON."""
    command = f"{COMMAND.format(name=name)} --page N"
    figures = [json.loads(page.text()) for page in pages]
    return safe(json.dumps({"format": MANY, "command": command, "figures": figures}, ensure_ascii=False))


class WhichPage(MtaVizError):
    """A file of many figures, and none of its pages is named."""


def from_text(text: str, page: int | None = None) -> Provenance:
    """What `Provenance.text` wrote, or `many_text` of this page, counted from 1; also of the version before.

    Raises MtaVizError saying what is missing or of the wrong kind.
    """
    try:
        data = json.loads(text)
        json.dumps(data, ensure_ascii=False).encode()  # JSON can hold halves of characters
    except (ValueError, RecursionError) as error:
        raise MtaVizError(f"it holds no JSON ({error})") from error
    if isinstance(data, dict) and data.get("format") == MANY:
        data = _on_page(data.get("figures"), page)
    elif page not in (None, 1):
        raise MtaVizError(f"it holds one figure, not a page {page}")
    if isinstance(data, dict) and data.get("format") == OLDER:
        data = _older(data)
    elif not isinstance(data, dict) or data.get("format") != FORMAT:
        raise MtaVizError(f'it does not say "format": "{FORMAT}"')
    return _checked(data)


def _checked(data: dict[str, Any]) -> Provenance:
    try:
        found = TypeAdapter(Provenance).validate_json(json.dumps(data), strict=True)
    except ValidationError as error:
        wrong = dict.fromkeys(".".join(map(str, fault["loc"][:2])) for fault in error.errors())
        raise MtaVizError(f"its {', '.join(wrong)} cannot be read") from error
    for side in (found.queries, found.keys):
        if side is not None and not 0 <= side[0] < side[1]:
            raise MtaVizError("its queries or keys are no range of tokens")
    return found


def _on_page(figures: object, page: int | None) -> object:
    """One of many. Raises MtaVizError listing them where none of them is named."""
    if not isinstance(figures, list) or not all(isinstance(figure, dict) for figure in figures):
        raise MtaVizError("its figures cannot be read")
    if page is not None and 1 <= page <= len(figures):
        return figures[page - 1]
    names = "; ".join(
        f"{at}: {str(figure.get('caption'))[:60]}" for at, figure in enumerate(figures, start=1)
    )
    raise WhichPage(f"it holds {len(figures)} figures, one a page; name one with --page N ({names})")


def _older(data: dict[str, Any]) -> dict[str, Any]:
    """The version before kept the run's facts beside the rest."""
    missing = [name for name in ("page", "figure", "view") if name not in data]
    if missing:
        raise MtaVizError(f"its {', '.join(missing)} cannot be read")
    run = ("checkpoint", "sha256", "prompt", "tokens", "interventions")
    rest = ("format", "command", *run)
    kept = {name: value for name, value in data.items() if name not in rest}
    facts = {name: data[name] for name in run if name in data}
    view = data["view"] if isinstance(data["view"], dict) else {}
    facts |= {"dtype": view["dtype"]} if "dtype" in view else {}
    facts |= {"step": int(view["step"])} if str(view.get("step", "")).isdecimal() else {}
    return kept | {"run": facts, "numbering": 1 if view.get("numbering") == "1" else 0}
