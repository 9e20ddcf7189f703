"""What the page shows that can be exported: each figure with its caption and numbers, and whence they are."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from mta_viz.exporting.provenance import RunOf
from mta_viz.plots.theme import Figure
from mta_viz.ui.shell import state

Range = tuple[int, int]  # of tokens, the end excluded
Part = tuple[Range | None, Range | None]  # queries and keys; None: those that are shown


@dataclass(frozen=True)
class Shown:
    """One figure of the page. `name` are the parts of a file's name, `key` its own on its page.

    `cropped(queries, keys)` is the same figure of a part of the prompt, where it can be made; raises
    MtaVizError for a part that is too large.
    """

    key: str
    name: tuple[object, ...]
    figure: Figure
    caption: str
    csv: Callable[[], str]
    cropped: Callable[[Range | None, Range | None], "Shown"] | None = None
    interventions: tuple[Any, ...] = ()

    def facts(self) -> dict[str, Any]:
        """What `Provenance` says of the page and of this figure's model."""
        shared = facts()
        return shared | {"run": replace(shared["run"], interventions=tuple(self.interventions))}


@dataclass(frozen=True)
class Table:
    """Numbers of the page that belong to no figure; the fields are those of `Shown`."""

    key: str
    name: tuple[object, ...]
    csv: Callable[[], str]
    interventions: tuple[Any, ...] = ()

    def facts(self) -> dict[str, Any]:
        """As of `Shown`."""
        shared = facts()
        return shared | {"run": replace(shared["run"], interventions=tuple(self.interventions))}


def show_table(table: Table) -> Table:
    """Say that the page shows it, as `show` does."""
    table = replace(table, interventions=tuple(state.get("plan as data", ())))
    _kept("shown tables")[table.key] = table
    return table


def show(shown: Shown) -> Shown:
    """Say that the page shows it, of a model with the interventions that hold now."""
    shown = replace(shown, interventions=tuple(state.get("plan as data", ())))
    _kept("shown")[shown.key] = shown
    return shown


def _kept(name: str) -> dict[str, Any]:
    return state.session().values.setdefault(name, {})


def clear() -> None:
    """Before the page's figures and tables are drawn anew."""
    _kept("shown").clear()
    _kept("shown tables").clear()


def all_shown() -> dict[str, Shown]:
    """By their keys, in the order in which they were drawn."""
    return dict(_kept("shown"))


def facts() -> dict[str, Any]:
    """What all figures of this page share, as `Provenance` has it."""
    from mta_viz.ui.shell import cache  # the model's libraries come with it, and a page opens without them

    model, run = state.get("page model"), state.get("page run")
    return {
        "page": state.session().page,
        "view": state.parameters(),
        "run": RunOf(
            checkpoint=state.selection().checkpoint or "",
            sha256="" if model is None else cache.digest(model),
            prompt=None if run is None else run.prompt,
            tokens=tuple(state.get("page tokens", ())),
            interventions=tuple(state.get("plan as data", ())),
        ),
    }
