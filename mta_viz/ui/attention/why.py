"""Why the selected cell has its value: the sum, its picture and its terms, one stage at a time."""

from collections.abc import Sequence
from functools import partial

import streamlit as st

from mta_viz.analysis.attention.decomposition import decompose
from mta_viz.analysis.attention.terms import Convolved, Decomposition, Mixed, Scored, Softmaxed, Term
from mta_viz.analysis.kernels.kernels import MADE_BY, KernelId
from mta_viz.exporting.data import decomposition_csv
from mta_viz.model.stages import Stage
from mta_viz.plots.attention.why import convolution_window, mixing_bars
from mta_viz.plots.theme import Figure, score_text, weight_text
from mta_viz.ui.attention.maps import Drawn, file_parts
from mta_viz.ui.shell.cache import remember
from mta_viz.ui.shell.pickers import go_to, on_offset
from mta_viz.ui.shell.plan import draw_test_button
from mta_viz.ui.shell.widgets import caption, caption_with_save, chart, head_label, picked, plain

FIGURE_PX = 540


def draw_why(drawn: Drawn) -> None:
    """The panel. Nothing for a masked cell: the panel beside the map says that it is masked."""
    selected = drawn.selected
    if selected.key > selected.query:
        return
    found = remember(
        lambda: decompose(
            drawn.page.trace, selected.layer, selected.stage, selected.head, selected.query, selected.key
        ),
        "why", *drawn.head_key, selected.stage, selected.query, selected.key,
    )  # fmt: skip
    st.markdown(f"**Why is it {plain(_number(found, found.value))}?** {plain(_sentence(found, drawn))}")
    figure = _figure(found, drawn)
    if figure is not None:
        source = on_offset(found.query, found.key, found.stage_before or Stage.RAW)
        then = source if isinstance(found, Convolved) else None
        chart(figure, f"why.{_place(found, drawn)}", then, alt="The sum that makes this value")
        caption_with_save(
            _residual(found),
            (*file_parts(drawn), "why", found.query, found.key, found.stage.value.key),
            figure,
            lambda: decomposition_csv(found, drawn.tokens),
            "why",
        )
    if found.terms:
        _draw_terms(found, drawn)
    kernel = _kernel(found)
    if kernel is not None:
        draw_test_button(kernel, "why.test")


def _kernel(found: Decomposition) -> KernelId | None:
    """The kernel, or the target's row of head mixing, that made the value; None where there is none."""
    if not isinstance(found, Convolved | Mixed):
        return None
    where = next(where for where, stage in MADE_BY.items() if stage is found.stage)
    return KernelId(found.layer, found.head, where)


def _place(found: Decomposition, drawn: Drawn) -> str:
    """Which cell of which run: keys widgets, so that an old choice is never taken for one here."""
    cell = (found.stage.value.key, found.layer, found.head, found.query, found.key)
    return ".".join(map(str, (drawn.page.key, *cell)))


def _number(found: Decomposition, value: float) -> str:
    return score_text(value) if found.stage.value.unit == "score" else weight_text(value)


def _sentence(found: Decomposition, drawn: Drawn) -> str:
    """What the value is made of, in words."""
    if isinstance(found, Convolved):
        before = found.stage_before
        source = before.value.long if before else "source"
        return f"Sum of {len(found.terms)} products: kernel tap x {source} there.{_cause_words(found, drawn)}"
    if isinstance(found, Mixed):
        mixed = "Sum over source heads: mixing weight x the same cell in that head."
        return mixed + _cause_words(found, drawn)
    if isinstance(found, Softmaxed):
        return _softmax_words(found, drawn)
    if isinstance(found, Scored):
        return (
            f"q·k/√d: |q| {found.query_norm:.3g} x |k| {found.key_norm:.3g} x cosine {found.cosine:+.3f} "
            f"/ √{found.d_head}. Nothing was mixed yet."
        )
    before = found.stage_before
    return f"The same as {before.value.long if before else 'before'}: nothing happens at this step."


def _cause_words(found: Decomposition, drawn: Drawn) -> str:
    """What the step did here: before, after, and what moved it most besides the cell itself."""
    cause = found.cause
    if cause.before is None or cause.largest is None:
        return ""
    term = cause.largest
    place = f"query {term.query}, key {term.key}"
    if isinstance(found, Mixed):
        place = head_label(term.head, drawn.page.numbering)
    before, after = _number(found, cause.before), _number(found, cause.after)
    largest = f"largest other term {term.product:+.3g} ({place})"
    return f" It was {before} before this step and is {after} now; {largest}."


def _softmax_words(found: Softmaxed, drawn: Drawn) -> str:
    words = f"exp({found.score:+.4g} - {found.log_normaliser:.4g}): its score less the logsumexp of the row."
    if found.rival is None or found.margin is None:
        return words
    rival = f'key {found.rival} "{drawn.tokens.pieces[found.rival]}"'
    side = "ahead of" if found.margin >= 0 else "behind"
    return f"{words} {abs(found.margin):.3g} nats {side} the largest other one, {rival}."


def _figure(found: Decomposition, drawn: Drawn) -> Figure | None:
    where = (*drawn.head_key, found.stage, found.query, found.key, drawn.page.numbering)
    if isinstance(found, Convolved):
        draw = partial(convolution_window, found, drawn.tokens, width=FIGURE_PX)
        return remember(draw, "window", *where)
    if isinstance(found, Mixed):
        draw = partial(mixing_bars, found, numbering_from=drawn.page.numbering, width=FIGURE_PX)
        return remember(draw, "bars of heads", *where)
    return None


def _residual(found: Decomposition) -> str:
    return f"The terms add up to the value; residual {found.residual:.1e} of the sum of their sizes."


def _draw_terms(found: Decomposition, drawn: Drawn) -> None:
    """All terms, largest product first; a row leads to its source, one stage earlier."""
    terms = [term for term in found.terms if term.state == "inside"]
    hidden = len(found.terms) - len(terms)
    key = f"terms.{_place(found, drawn)}"
    st.dataframe(
        [_row(found, term, drawn) for term in terms],
        height=38 + 35 * min(len(terms), 6),
        hide_index=True,
        column_config={"query": st.column_config.Column(width=70), "key": st.column_config.Column(width=70)},
        key=key,
        on_select=lambda: _follow(picked(key), terms, found),
        selection_mode="single-row",
    )
    left_out = f" {hidden} taps fall on masked or missing cells and add 0." if hidden else ""
    caption(f"Choose a row to go to its source, one stage earlier.{left_out}")


def _row(found: Decomposition, term: Term, drawn: Drawn) -> dict[str, object]:
    pieces = drawn.tokens.pieces
    place: dict[str, object] = {
        "query": f"{term.query} {pieces[term.query]}",
        "key": f"{term.key} {pieces[term.key]}",
    }
    if isinstance(found, Mixed):
        place = {"source head": head_label(term.head, drawn.page.numbering)}
    numbers = {"weight": term.weight, "value": term.source, "product": term.product}
    return place | {name: float(f"{value:.5g}") for name, value in numbers.items()}


def _follow(row: int | None, terms: Sequence[Term], found: Decomposition) -> None:
    if row is None or not 0 <= row < len(terms):
        return
    term, before = terms[row], found.stage_before or Stage.RAW
    go_to(head=term.head, query=term.query, key=term.key, stage=before.value.key)
