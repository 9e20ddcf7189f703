"""What a kernel's card says: its title, and the verbs looks and acts. Draws nothing."""

from collections.abc import Mapping

import numpy as np

from mta_viz.analysis.kernels.kernels import KEY_QUERY, WHERE, KernelId, Offsets
from mta_viz.analysis.kernels.measures import NAMES, OPPOSED, cannot_show, size_words
from mta_viz.analysis.kernels.naming import ALL_ZERO, IDENTITY, NONE, NOT_FINITE
from mta_viz.analysis.kernels.probes import ProbeResult
from mta_viz.analysis.kernels.table import Row
from mta_viz.ui.shell.widgets import head_name

MEANING = {
    "diagonal": "sequence match",
    "induction": "the key after a match",
    "anti-diagonal": "reversed sequence",
    "priming": "earlier queries attended the same key",
    "inhibition of return": "a key attended before is lowered",
    "smoothing": "blur",
    "sharpening": "both sides lowered",
    "edge-first": "first of a run",
    "edge-last": "last of a run",
    "both edges": "first and last of a run",
    "KV shift": "reads the previous key",
}
HIGH_RANK = 0.95
DOUBT = "Looks like {shape}, but the probe shows no such effect: treat the name as doubtful."


def kernel_name(kernel: KernelId, numbering: int) -> str:
    """`L2 H1 · before the softmax`, in the visitor's counting."""
    place = f"{head_name(kernel.layer, kernel.head, numbering)} · {WHERE[kernel.where]}"
    return place if kernel.where in KEY_QUERY else f"{place} · head mixing"


def title(kernel: KernelId, row: Row, acts: bool | None, numbering: int) -> str:
    """`L2 H1 · before the softmax · 6x11 · diagonal (sequence match)`; an edge without a probe has a "?"."""
    parts = [kernel_name(kernel, numbering)]
    if row["c_q"]:
        parts.append(f"{row['c_q']}x{row['c_k']}")
    shape = row["shape"] + "?" * (row["evidence"] == "edge" and not acts)
    meaning = MEANING.get(row["shape"].removeprefix("negative "))
    parts.append(f"{'near identity, faint ' * bool(row['faint'])}{shape}{f' ({meaning})' if meaning else ''}")
    return " · ".join(parts)


def looks(row: Row, acts: bool | None, offsets: Offsets) -> str:
    """What the taps look like, with the next best template; what a kernel of this size cannot show."""
    words = row["verdict"].replace(" (?)", "" if acts else " (?)")
    own = next((name for name, other in OPPOSED.items() if other == row["shape"]), row["shape"])
    own = own.removeprefix("negative ")
    others = {name: row[name.replace("-", "_")] for name in NAMES if name != own}
    known = {name: value for name, value in others.items() if value is not None}
    if known and row["shape"] not in (NOT_FINITE, ALL_ZERO):
        name = max(known, key=lambda template: abs(known[template]))
        words += f"; next template: {name} {known[name]:+.2f}"
    return f"Looks like: {words}.{_no_room(offsets)}"


def _no_room(offsets: Offsets) -> str:
    missing = [name for name in ("diagonal", "priming") if name in cannot_show(offsets)]
    if not missing:
        return ""
    rows = size_words(len(offsets.query), len(offsets.key))
    return f" A {rows} kernel cannot show a {' or '.join(missing)}: too few taps lie on its line."


def broken(row: Row, kernel_taps: np.ndarray) -> str:
    """Why a kernel cannot be measured, and what that does; empty for a kernel that can."""
    if row["shape"] == NOT_FINITE:
        count = int((~np.isfinite(kernel_taps)).sum())
        return (
            f"NaN or infinite in {count} {'tap' if count == 1 else 'taps'}: every map cell that reads one is "
            "broken. Nothing can be measured or probed; what is finite is drawn."
        )
    if row["shape"] == ALL_ZERO:
        return "All taps are 0: this head's map is erased here. There is nothing to measure or probe."
    return ""


def acts_like(row: Row, result: ProbeResult | None, rank: float, count: int) -> str:
    """The probe's finding for the claimed shape, its place among the model's kernels, and any doubt."""
    if result is None:
        if row["shape"] == IDENTITY:
            return "Acts like it: near identity, scores pass as they are; no shape is claimed."
        if row["shape"] == NONE:
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
    return f"{measured}, which at most 1 in 100 random kernels passes."


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


def mixing_facts(row: Row) -> Mapping[str, str]:
    """The scores of a head-mixing row that mean something, in words."""
    names = {
        "own_weight": "own weight",
        "energy_off_identity": "energy from other heads",
        "contrast": "contrast",
        "subtracted_fraction": "subtracted fraction of the contrasted head",
        "common_mode": "common mode (1 averages all heads)",
        "scaled_identity": "scaled identity (whole group)",
        "permutation": "permutation (whole group)",
        "angle": "angle in degrees (0 identity, −45 contrast, +45 average)",
    }
    return {words: f"{row[name]:+.3g}" for name, words in names.items() if row[name] is not None}
