"""The visitor's plan: a list of interventions for each checkpoint, with undo, and in the address as `e`.

Owns where the list is kept. A plan acts where it is on and the model has what it names.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import streamlit as st

from mta_viz.config import ModelConfig
from mta_viz.errors import ConfigError
from mta_viz.interventions.addresses import MAX_CHARACTERS, Listed, active, from_address, to_address
from mta_viz.interventions.kinds import Intervention
from mta_viz.interventions.plans import Plan
from mta_viz.ui import state

NAME = "e"
Listing = tuple[Listed, ...]


@dataclass(frozen=True)
class History:
    """The list, what it was before, and what undo took back; the latest at the end of each."""

    now: Listing = ()
    past: tuple[Listing, ...] = ()
    future: tuple[Listing, ...] = ()


def history() -> History:
    """Of the chosen checkpoint."""
    return state.get("plans", {}).get(state.view().checkpoint, History())


def _keep(changed: History) -> None:
    state.put("plans", {**state.get("plans", {}), state.view().checkpoint: changed})


def listed() -> Listing:
    """All interventions, also those that are off."""
    return history().now


def plan(config: ModelConfig) -> Plan:
    """What acts: those that are on and can be done to the model."""
    return tuple(one for one in active(listed()) if not one.problems(config))


def change(listing: Listing) -> None:
    """Another list; the old one can be got back."""
    old = history()
    if listing != old.now:
        _keep(History(listing, (*old.past, old.now)))


def undo() -> None:
    """The list as it was before the last change."""
    old = history()
    if old.past:
        _keep(History(old.past[-1], old.past[:-1], (*old.future, old.now)))


def redo() -> None:
    """The list as it was before the last undo."""
    old = history()
    if old.future:
        _keep(History(old.future[-1], (*old.past, old.now), old.future[:-1]))


def add(intervention: Intervention) -> None:
    """Put it at the end, switched on; once only."""
    rest = tuple(one for one in listed() if one.intervention != intervention)
    change((*rest, Listed(intervention)))


def switch(index: int) -> None:
    """On, off."""
    _replace(index, lambda one: replace(one, on=not one.on))


def put(index: int, intervention: Intervention) -> None:
    """Another intervention in the place of one."""
    _replace(index, lambda one: replace(one, intervention=intervention))


def remove(index: int) -> None:
    """Take one out."""
    change(tuple(one for at, one in enumerate(listed()) if at != index))


def clear() -> None:
    """Take all out."""
    change(())


def _replace(index: int, make: Callable[[Listed], Listed]) -> None:
    change(tuple(make(one) if at == index else one for at, one in enumerate(listed())))


def parameters() -> dict[str, str]:
    """The list as a parameter of the address; empty without one, and for one that is too long."""
    text = to_address(listed())
    return {NAME: text} if text and len(text) <= MAX_CHARACTERS else {}


def restore() -> None:
    """Take the list from the address, once a session; what is none is said by `problem`."""
    if state.get("plan read"):
        return
    state.put("plan read", True)
    text = st.query_params.get(NAME)
    if not text:
        return
    try:
        _keep(History(from_address(text)))
    except ConfigError as error:
        state.put("plan problem", f"The link's plan was left out. {error}")


def problem() -> str:
    """Why the address's plan was left out; "" where it was not."""
    return state.get("plan problem", "")
