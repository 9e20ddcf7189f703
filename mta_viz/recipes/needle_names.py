"""Which cities a training sequence names: known ones and made-up ones, sometimes easily confused.

Owns the draw and the tokens of the names; needle_data.py puts them into sentences.
"""

from collections import defaultdict

import numpy as np
from tokenizers import Tokenizer as Library

from mta_viz.recipes.needle_config import NeedleConfig
from mta_viz.tasks.cities import KNOWN_CITIES, made_up_cities

ALIKE = 0.3  # share of sequences in which at least two cities begin or end with the same token


class CityNames:
    """All names with their tokens, and the draw of those for one sequence.

    `ids[c]` are the tokens of city c with the space before it, which do not depend on its
    neighbours; the first len(KNOWN_CITIES) are real.
    """

    def __init__(self, library: Library, config: NeedleConfig) -> None:
        names = KNOWN_CITIES + made_up_cities(config.made_up_cities)
        encodings = library.encode_batch([f" {name}" for name in names], add_special_tokens=False)
        self.names = names
        self.ids = [np.array(encoding.ids, dtype=np.int32) for encoding in encodings]
        self._n_made_up = config.made_up_cities
        self._share = config.made_up_share if config.made_up_cities else 0.0
        self._groups = _alike(self.ids)

    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Indices of `count` different cities."""
        n_made_up = int(rng.binomial(count, self._share))
        known = rng.choice(len(KNOWN_CITIES), count - n_made_up, replace=False)
        made_up = len(KNOWN_CITIES) + rng.choice(self._n_made_up, n_made_up, replace=False)
        cities = rng.permutation(np.concatenate([known, made_up]))
        if count == 1 or not self._groups or rng.random() >= ALIKE:
            return cities
        group = self._groups[rng.integers(len(self._groups))]
        alike = rng.choice(group, min(len(group), int(rng.integers(2, count + 1))), replace=False)
        return np.concatenate([alike, cities[~np.isin(cities, alike)]])[:count]


def _alike(ids: list[np.ndarray]) -> list[np.ndarray]:
    """Groups of cities with the same first or the same last token, in the order of the cities."""
    groups: dict[tuple[str, int], list[int]] = defaultdict(list)
    for city, tokens in enumerate(ids):
        groups["first", int(tokens[0])].append(city)
        groups["last", int(tokens[-1])].append(city)
    return [np.array(group) for group in groups.values() if len(group) > 1]
