"""Made-up, pronounceable place names, so that a model can train on more cities than there are.

Owns the names alone; which cities are real and which are held out is cities.py's to say.
"""

import itertools
import random
from collections.abc import Iterator

from mta_viz.tasks.cities import CITIES, HELD_OUT_CITIES, KNOWN_CITIES
from mta_viz.tasks.grammar.lexicon import TOWNS
from mta_viz.tasks.grammar.topic import words

_OPENINGS = words(
    "A; Al; An; Ar; As; B; B; B; Bl; Br; C; C; Ch; Cl; Cr; D; D; D; Dr; E; El; En; Er; Es; F; F; Fl; Fr; "
    "G; G; G; Gh; Gl; Gr; H; H; H; I; Il; In; Is; J; J; J; K; K; K; Kh; Kl; Kr; Kw; L; L; L; Ll; M; M; M; "
    "M; Mb; Mc; N; N; N; Nd; Ng; O; Ol; Om; Or; Os; P; P; P; Ph; Pl; Pr; Qu; Q; R; R; R; Rh; S; S; S; "
    "Sch; Sh; Sk; Sl; Sm; Sp; St; Sv; T; T; T; Th; Tr; Ts; Tz; U; Ul; Um; Un; Ur; Us; V; V; V; Vl; Vr; W; "
    "W; W; Wh; X; Y; Y; Y; Z; Z; Zh; Zw"
)
_VOWELS = words(
    "a; a; a; a; a; e; e; e; e; i; i; i; o; o; o; o; u; u; u; y; aa; ae; ai; au; ea; ee; ei; eo; eu; ia; ie; "
    "io; iu; oa; oe; oi; oo; ou; ua; ue; ui; uo"
)
_BETWEEN = words(
    "b; b; c; ch; ck; d; d; dj; f; g; g; gh; h; j; k; k; kh; l; l; l; m; m; m; n; n; n; p; p; r; r; r; s; "
    "s; sh; t; t; th; v; v; w; y; z; z; zh; bb; br; dd; dr; ff; gg; gn; kk; kr; ld; lg; ll; lm; lt; lv; "
    "mb; mm; mp; nc; nd; ng; nk; nn; nt; pp; qu; rb; rd; rg; rk; rl; rm; rn; rr; rs; rt; rv; sc; sk; sm; "
    "sp; ss; st; str; tl; tr; tt; tz; vr; x; zz"
)
_ENDINGS = words(
    "a; a; a; a; ia; o; o; o; i; i; e; e; u; us; um; on; an; an; in; en; ar; er; or; is; as; os; es; ed; "
    "el; al; il; ek; ik; ov; ow; ak; ad; at; et; it; im; am; ay; ey; ir; ent; ant; ens; ark; ort; ust; "
    "insk; ansk; ino; ano; aro; ara; ava; era; eva; ona; una; ola; aba; abad; ette; ista; igi; uku; atu; "
    "berg; burg; burgh; bury; by; chester; dale; fell; field; ford; gate; grad; ham; haven; heim; holm; "
    "hurst; je; ka; kirk; ko; land; leigh; lin; lund; ma; mere; mouth; na; ness; ni; pol; pool; pur; ra; "
    "ro; si; stad; stan; stein; sted; stow; ta; thorpe; to; ton; tu; vale; vik; ville; wall; wick; worth; "
    "ya; yo; za"
)
_FIRST = words(
    "San; San; Santa; Saint; New; New; Las; Los; El; La; Le; Fort; Mount; Cape; Rio; Villa; Nova; Great; "
    "Upper; Lower; North; South; East; West; Old; Puerto; Monte; Castel; Point; Grand"
)
_SMALL = words("de; de; al; la; el; do; da; sur; of; on; am; van; di; ben; in")
_LAST = words(
    "City; City; Bay; Beach; Falls; Springs; Harbour; Hill; Hills; Valley; Island; Junction; Park; Rock; "
    "Creek; Heights; Point; Grove"
)
# s a made-up word, f and l a shared first and last word, m a small word between
_SHAPES = (*["s"] * 9, *["fs"] * 4, *["ss"] * 2, *["sl"] * 2, "fsl", "ssl", "sms", "fms")
_VOWEL_LETTERS = "aeiou"
LONGEST = 16  # characters, as the longest real one


def made_up_cities(count: int) -> tuple[str, ...]:
    """The first `count` of a fixed sequence of distinct names, of one to three words each.

    No name holds a real city of the needle task or a town of the grammar, nor a word that only
    held-out cities have. The same everywhere: no seed, no hash order.
    """
    names: dict[str, None] = {}
    source = _names()
    while len(names) < count:
        names[next(source)] = None
    return tuple(names)


def _names() -> Iterator[str]:
    """Names without end, some of them more than once."""
    rng = random.Random("made-up cities")
    taken = _taken()
    while True:
        name = _name(rng)
        if len(name) <= LONGEST and not taken & set(_runs(name)):
            yield name


def _name(rng: random.Random) -> str:
    shared = {"f": _FIRST, "m": _SMALL, "l": _LAST}
    shape = rng.choice(_SHAPES)
    return " ".join(rng.choice(shared[slot]) if slot in shared else _word(rng) for slot in shape)


def _word(rng: random.Random) -> str:
    """An opening, up to two syllables and an ending, with a vowel wherever consonants would meet."""
    text = rng.choice(_OPENINGS)
    for _ in range(rng.choice((0, 0, 0, 1, 1, 1, 1, 2))):
        text += rng.choice(_VOWELS) if text[-1].lower() not in _VOWEL_LETTERS else ""
        text += rng.choice(_BETWEEN)
    ending = rng.choice(_ENDINGS)
    if (text[-1].lower() in _VOWEL_LETTERS) == (ending[0] in _VOWEL_LETTERS):
        text += rng.choice(_BETWEEN if ending[0] in _VOWEL_LETTERS else _VOWELS)
    return text + ending


def _taken() -> frozenset[str]:
    """In small letters: real cities and towns, and the words that only held-out cities have."""
    known = {word for city in KNOWN_CITIES for word in city.lower().split()}
    held_out = {word for city in HELD_OUT_CITIES for word in city.lower().split()}
    return frozenset(name.lower() for name in (*CITIES, *TOWNS)) | (held_out - known)


def _runs(name: str) -> Iterator[str]:
    """Every run of consecutive words, in small letters."""
    parts = name.lower().split()
    for start, stop in itertools.combinations(range(len(parts) + 1), 2):
        yield " ".join(parts[start:stop])
