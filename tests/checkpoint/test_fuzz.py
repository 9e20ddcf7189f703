"""Two hundred damaged files of every kind: each opens, or is refused in words. `make fuzz` tries 2,000."""

from collections import Counter

from benchmarks import fuzz

SEED, CASES = 0, 200


def test_damaged_files_open_or_are_refused_in_words() -> None:
    outcomes = [fuzz.run(number, SEED) for number in range(CASES)]
    wrong = [(at, *found) for at, found in enumerate(outcomes) if found[1] not in ("opened", "refused")]
    assert not wrong, f"seed {SEED}"
    counts = Counter(said for _, said in outcomes)
    assert counts["opened"] >= 0.3 * CASES and counts["refused"] >= 0.3 * CASES
