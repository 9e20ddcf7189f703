"""Where two prompts hold the same tokens: the positions whose attention can be subtracted.

Owns which cells are compared and why no others; the maps are `compared_maps.py`'s.
"""

from dataclasses import dataclass

from mta_viz.model.transformer import HookedMTA
from mta_viz.tokenizers.base import Tokens

NAMED = 3  # differing positions that are named


@dataclass(frozen=True)
class Agreement:
    """The first `n` positions are compared, without the rows and columns of `unlike`; `why` says it."""

    n: int
    unlike: tuple[int, ...]
    why: str

    @property
    def whole(self) -> bool:
        """Whether both prompts are the same."""
        return not self.why

    @property
    def n_like(self) -> int:
        """Positions with equal tokens among those compared."""
        return self.n - len(self.unlike)


def agreement(a: Tokens, b: Tokens, *, same_ids: bool) -> Agreement:
    """Equally long prompts that differ in under half of their tokens are compared position by position.

    Others up to the first token that differs, since from there on positions mean other things.
    `same_ids`: whether an id means the same in both, see `same_vocabulary`; else labels are compared.
    """
    left, right = (a.ids, b.ids) if same_ids else (a.pieces, b.pieces)
    unlike = tuple(at for at, pair in enumerate(zip(left, right, strict=False)) if pair[0] != pair[1])
    if len(a) == len(b) and 2 * len(unlike) < len(a):
        return Agreement(len(a), unlike, _some_differ(a, b, unlike) if unlike else "")
    n = unlike[0] if unlike else min(len(a), len(b))
    return Agreement(n, (), _from_there(a, b, n))


def same_vocabulary(a: HookedMTA, b: HookedMTA) -> bool:
    """Whether every id stands for the same token in both models; without tokenizers, their number."""
    size = a.config.vocab_size
    if size != b.config.vocab_size:
        return False
    if a.tokenizer is b.tokenizer or a.tokenizer is None or b.tokenizer is None:
        return True
    ids = tuple(range(size))
    return a.tokenizer.pieces(ids) == b.tokenizer.pieces(ids)


def _some_differ(a: Tokens, b: Tokens, unlike: tuple[int, ...]) -> str:
    named = ", ".join(f"{at} {_both(a, b, at)}" for at in unlike[:NAMED])
    more = f" and {len(unlike) - NAMED} more" if len(unlike) > NAMED else ""
    places = "1 position" if len(unlike) == 1 else f"{len(unlike)} positions"
    return (
        f"Tokens differ at {places} of {len(a)}: {named}{more}. Rows and columns of these positions are "
        "hatched; the others are compared position by position."
    )


def _from_there(a: Tokens, b: Tokens, n: int) -> str:
    if n == min(len(a), len(b)):
        ends = f"A has {len(a)} tokens, B {len(b)}"
        return f"{ends}, and they agree while both last: compared up to position {n - 1}."
    where = f"Tokens differ from position {n} on {_both(a, b, n)}"
    lengths = "" if len(a) == len(b) else f"; A has {len(a)} tokens, B {len(b)}"
    return f"{where}{lengths}: " + ("compared up to there." if n > 0 else "there is nothing to subtract.")


def _both(a: Tokens, b: Tokens, at: int) -> str:
    return f'("{a.pieces[at]}" / "{b.pieces[at]}")'
