"""One kernel's card: what it looks like, how it acts on synthetic maps, what it resembles, what it is worth.

Owns the order of the card, its widgets, and its words: the title, and the verbs looks and acts.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from mta_viz.analysis.attention.matches import AtMatches
from mta_viz.analysis.kernels import naming
from mta_viz.analysis.kernels.kernels import KEY_QUERY, MADE_BY, WHERE, KernelId, Offsets
from mta_viz.analysis.kernels.measures import NAMES, OPPOSED, OWN_TAP_SHARE, cannot_show, size_words
from mta_viz.analysis.kernels.probes import PROBES, ProbeResult, probe_of
from mta_viz.analysis.kernels.table import Row, kernel_of, probe_percentile
from mta_viz.config import KernelPlace, MixingPlace
from mta_viz.errors import MtaVizError
from mta_viz.figures.base import Source
from mta_viz.figures.kernels import card as figures
from mta_viz.figures.kernels.atlas import MEANING
from mta_viz.figures.kernels.card import CardKernel, KernelProbe
from mta_viz.figures.kernels.gallery import effects_without, kernel_rows, measured_effects, model_layers
from mta_viz.figures.kernels.layer import LayerMixing
from mta_viz.plots.kernels.card import WIDTH
from mta_viz.printed import head_name
from mta_viz.ui.kernels import parts
from mta_viz.ui.shell import state
from mta_viz.ui.shell.page import WORKSPACE, Page
from mta_viz.ui.shell.plan import draw_test_button
from mta_viz.ui.shell.show import draw, show, source_of
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.widgets import caption, plain

HIDE_OWN, FREQUENCIES = Setting("hide_own_tap", False), Setting("card_frequency", False)
ACTS = "Acts like it: no probe is needed, the weights below are what each head's map is multiplied by."
MIXING_SCORES = {
    "own_weight": "own weight",
    "energy_off_identity": "energy from other heads",
    "contrast": "contrast",
    "subtracted_fraction": "subtracted fraction of the contrasted head",
    "common_mode": "common mode (1 averages all heads)",
    "scaled_identity": "scaled identity (whole group)",
    "permutation": "permutation (whole group)",
    "angle": "angle in degrees (0 identity, −45 contrast, +45 average)",
}
HIGH_RANK = 0.95
DOUBT = "Looks like {shape}, but the probe shows no such effect: treat the name as doubtful."


def draw_card(page: Page, kernel: KernelId) -> None:
    """The card of one kernel of the page's model; says so when the model has no such kernel."""
    source = parts.weights_source(page)
    row = next((row for row in kernel_rows(source) if kernel_of(row) == kernel), None)
    if row is None:
        name = kernel_name(kernel, page.numbering)
        st.info(plain(f"This model has no kernel {name}. Choose another one above."))
        return
    heading = st.container()
    if not page.model.kernels_only:
        with st.container(horizontal=True):
            look: dict[str, Any] = {"icon": ":material/grid_on:", "key": "card.attention", "type": "primary"}
            st.button("Open in the workspace", on_click=_open_in_workspace, args=(kernel,), **look)
            draw_test_button(kernel, "card.test")
    st.markdown("**On your prompt**")
    if kernel.where in KEY_QUERY:
        place: KernelPlace = "pre" if kernel.where == "pre" else "post"
        _draw_kernel(page, figures.card_kernel(source, kernel), place, heading)
    else:
        heading.markdown(f"##### {plain(title(kernel, row, None, source.numbering))}")
        parts.draw_prompt(page, kernel)
        _draw_mixing(source, kernel, row, "head_pre" if kernel.where == "head_pre" else "head_post")
    parts.draw_matters(page, kernel)


def _open_in_workspace(kernel: KernelId) -> None:
    state.select(layer=kernel.layer, head=kernel.head, stage=MADE_BY[kernel.where].value.key)
    st.switch_page(WORKSPACE)


def _draw_mixing(source: Source, kernel: KernelId, row: Row, where: MixingPlace) -> None:
    group = figures.mixing_group(model_layers(source)[kernel.layer], where, kernel.head)[2]
    trouble = broken(row, group).replace("this head's map", "what this head receives")
    name = f"{kernel.where}.{kernel.layer}.{kernel.head}"
    st.markdown("**Its weights**")
    if trouble:
        st.warning(plain(trouble))
    else:
        pair = "" if len(group) > 2 else "Two heads a group: an angle of two numbers carries no significance."
        st.markdown(plain(f"Looks like: {row['verdict']}. {pair}"))
        st.markdown(plain(ACTS))
    with st.container(horizontal=True, gap="medium", vertical_alignment="top"):
        with st.container(width=WIDTH):
            show(source, figures.MixingRow(kernel.layer, kernel.head, where), widget=f"card.row.{name}")
        with st.container(width=WIDTH):
            show(source, LayerMixing(kernel.layer, where), widget=f"card.matrix.{name}")
    if not trouble:
        facts = {words: row[name] for name, words in MIXING_SCORES.items() if row[name] is not None}
        st.table({"score": list(facts), "value": [f"{value:+.3g}" for value in facts.values()]})
    st.markdown(plain(parts.matters_sentence(measured_effects(source), kernel)))


def _draw_kernel(page: Page, card: CardKernel, where: KernelPlace, heading: DeltaGenerator) -> None:
    """What it does on the prompt, its taps, and then the statistics."""
    source, kernel, trouble = parts.weights_source(page), card.kernel, broken(card.row, card.taps)
    place, name = (kernel.layer, kernel.head, where), f"{where}.{kernel.layer}.{kernel.head}"
    measured = None if trouble else parts.matches_of(page, card)
    probed = source if measured is None else source_of(page)
    probe = None if trouble else probe_of(card.row["shape"])
    result = None if probe is None else draw(probed, KernelProbe(*place, probe)).result
    acts = None if result is None else result.acts
    heading.markdown(f"##### {plain(title(kernel, card.row, acts, source.numbering, measured))}")
    if trouble:
        heading.warning(plain(trouble))
    parts.draw_prompt(page, kernel)
    if not trouble:
        st.markdown(plain(parts.matches_sentence(page, measured)))
    with st.container(horizontal=True, gap="medium", vertical_alignment="top"):
        with st.container(width=WIDTH):
            words = "The own tap is the weight of the cell itself; without it the small structure shows."
            hide = st.toggle("Hide own tap", help=words, **HIDE_OWN.widget())
            show(source, figures.KernelTaps(*place, hide), widget=f"card.{name}")
        if trouble:
            return
        with st.container(width=WIDTH):
            _draw_probe(probed, card, place, result)
    st.markdown("**Statistics**")
    st.markdown(plain(looks(card.row, acts, card.offsets)))
    rank = 0.0 if result is None else _rank(source, card, result.probe)
    st.markdown(plain(acts_like(card.row, result, rank, int(card.stack.usable().sum()))))
    st.markdown(plain(parts.matters_sentence(effects_without(source), kernel)))
    with st.container(horizontal=True, gap="medium", vertical_alignment="top"):
        with st.container(width=WIDTH), _missing_as_caption():
            show(source, figures.KernelScores(*place), widget=f"card.scores.{name}")
        with st.container(width=WIDTH), _missing_as_caption():
            _draw_near(source, place, name)
    if st.toggle("Frequency response", **FREQUENCIES.widget()):
        show(source, figures.KernelFrequencies(*place), widget=f"card.frequency.{name}")


def _draw_near(source: Source, place: tuple[int, int, KernelPlace], name: str) -> None:
    near = show(source, figures.NearestKernels(*place), widget=f"card.nearest.{name}").result.near
    with st.container(horizontal=True):
        for at, (other, cosine) in enumerate(near):
            label = plain(f"{kernel_name(other, source.numbering)} · cosine {cosine:+.2f}")
            st.button(label, key=f"card.open.{at}", on_click=parts.select_kernel, args=(other,))


def _rank(source: Source, card: CardKernel, probe: str) -> float:
    return source.remember(
        lambda: probe_percentile(card.stack, card.kernel, probe), "probe rank", card.kernel, probe
    )


@contextmanager
def _missing_as_caption() -> Iterator[None]:
    """For figures that some kernels have not."""
    try:
        yield
    except MtaVizError as error:
        caption(str(error))


def _draw_probe(
    source: Source, card: CardKernel, place: tuple[int, int, KernelPlace], result: ProbeResult | None
) -> None:
    own = PROBES[0] if result is None else result.probe
    name = ".".join(map(str, place))
    words = "A synthetic score map run through this kernel's convolution."
    look: Any = {"index": PROBES.index(own), "key": f"card.probe.{name}", "width": WIDTH, "help": words}
    chosen = st.selectbox("Probe", PROBES, **look)
    spec = KernelProbe(*place, chosen)
    if result is None or chosen != own:
        answer = draw(source, spec).result
        rank = ranked(answer, _rank(source, card, chosen), int(card.stack.usable().sum()))
        st.markdown(plain(f"{answer.sentence} {threshold(answer)} {rank}"))
    show(source, spec, widget=f"card.probe picture.{name}")


def kernel_name(kernel: KernelId, numbering: int) -> str:
    """`L2 H1 · before the softmax`, in the visitor's counting."""
    place = f"{head_name(kernel.layer, kernel.head, numbering)} · {WHERE[kernel.where]}"
    return place if kernel.where in KEY_QUERY else f"{place} · head mixing"


def title(kernel: KernelId, row: Row, acts: bool | None, numbering: int, at: AtMatches | None = None) -> str:
    """`L2 H1 · before the softmax · 6x11 · diagonal (sequence match)`; an edge without a probe has a "?".

    The name is of the taps; which way a named kernel acts is said as measured.
    """
    size = [f"{row['c_q']}x{row['c_k']}"] if row["c_q"] else []
    shape = row["shape"] + "?" * (row["evidence"] == "edge" and not acts)
    kind = naming.family(row["shape"]) if row["evidence"] == "template" else row["shape"]
    meaning = MEANING.get(kind.removeprefix("negative "), "")
    if meaning and kind.startswith("negative "):
        own = row["identity_cosine"] >= OWN_TAP_SHARE
        meaning += ", taps against the own tap" if own else ", taps negative"
    name = f"{'near identity, faint ' * bool(row['faint'])}{shape}{f' ({meaning})' if meaning else ''}"
    measured = [f"{at.action} on this prompt"] if at is not None and at.action and row["evidence"] else []
    return " · ".join([kernel_name(kernel, numbering), *size, name, *measured])


def looks(row: Row, acts: bool | None, offsets: Offsets) -> str:
    """What the taps look like, with the next best template; what a kernel of this size cannot show."""
    words = row["verdict"].replace(" (?)", "" if acts else " (?)")
    also = (row["names"] or "").split(naming.BETWEEN_NAMES)[1:]
    words += f"; also {', '.join(also)}" if also else ""
    opposed = {other: name for name, other in OPPOSED.items()}
    own = {opposed.get(name, name).removeprefix("negative ") for name in naming.names_of(row)}
    others = {name: row[name.replace("-", "_")] for name in NAMES if name not in own}
    known = {name: value for name, value in others.items() if value is not None}
    if known and row["shape"] not in (naming.NOT_FINITE, naming.ALL_ZERO):
        name = max(known, key=lambda template: abs(known[template]))
        words += f"; next template: {name} {known[name]:+.2f}"
    missing = [name for name in ("diagonal", "priming") if name in cannot_show(offsets)]
    if not missing:
        return f"Looks like: {words}."
    size, them = size_words(len(offsets.query), len(offsets.key)), " or ".join(missing)
    return f"Looks like: {words}. A {size} kernel cannot show a {them}: too few taps lie on its line."


def broken(row: Row, kernel_taps: np.ndarray) -> str:
    """Why a kernel cannot be measured, and what that does; empty for a kernel that can."""
    if row["shape"] == naming.NOT_FINITE:
        count = int((~np.isfinite(kernel_taps)).sum())
        return (
            f"NaN or infinite in {count} {'tap' if count == 1 else 'taps'}: every map cell that reads one is "
            "broken. Nothing can be measured or probed; what is finite is drawn."
        )
    if row["shape"] == naming.ALL_ZERO:
        return "All taps are 0: this head's map is erased here. There is nothing to measure or probe."
    return ""


def acts_like(row: Row, result: ProbeResult | None, rank: float, count: int) -> str:
    """The probe's finding for the claimed shape, its place among the model's kernels, and any doubt."""
    if result is None:
        if row["shape"] == naming.IDENTITY:
            return "Acts like it: near identity, scores pass as they are; no shape is claimed."
        if row["shape"] == naming.NONE:
            return "Acts like it: no shape is claimed. Choose a probe below to see what the kernel does."
        return "Acts like it: cannot be probed."
    words = [f"Acts like it: {result.sentence}", threshold(result)]
    if not result.acts:
        words.append(DOUBT.format(shape=row["shape"]))
    return " ".join([*words, ranked(result, rank, count)])


def threshold(result: ProbeResult) -> str:
    """The measured number beside what random kernels reach."""
    side = "below" if result.lowers else "above"
    verb = "is" if result.acts else "is not"
    measured = f"{result.measured:+.2f} {verb} {side} {result.threshold:+.2f}"
    return f"The shape itself, at matches of +1: {measured}, which about 1 in 100 Gaussian kernels passes."


def ranked(result: ProbeResult, rank: float, count: int) -> str:
    """Where the kernel stands among its model's kernels of the same size."""
    if np.isnan(rank):
        return "No other kernel of this size to rank it with."
    beyond = 1 - rank if result.lowers else rank
    side, end = ("below", "5th") if result.lowers else ("above", "95th")
    place = "" if beyond > HIGH_RANK else "not "
    return (
        f"This is {side} {beyond:.0%} of the model's other {count - 1} kernels of this size: "
        f"{place}beyond the {end} percentile."
    )
