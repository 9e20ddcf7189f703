"""Which part of a long map is shown exactly: chosen by a box, by a search or by the selection."""

from dataclasses import dataclass

WHOLE_UP_TO = 256  # tokens: longer maps are an overview plus an exact crop; more cells take no clicks
CROP_SIZE = 256  # tokens a side of the largest box
AROUND_SIZE = 128  # tokens a side around a cell: about 3 pixels a cell, enough to hit one


@dataclass(frozen=True)
class Crop:
    """Token ranges of an exact map, ends excluded, at most `CROP_SIZE` long."""

    query_start: int
    query_stop: int
    key_start: int
    key_stop: int

    @property
    def queries(self) -> slice:
        """Rows."""
        return slice(self.query_start, self.query_stop)

    @property
    def keys(self) -> slice:
        """Columns."""
        return slice(self.key_start, self.key_stop)

    def holds(self, query: int, key: int) -> bool:
        """Whether the cell is inside."""
        rows, columns = (self.query_start, self.query_stop), (self.key_start, self.key_stop)
        return rows[0] <= query < rows[1] and columns[0] <= key < columns[1]


def around(query: int, key: int, n_tokens: int) -> Crop:
    """The crop with this cell in its middle, moved inside the prompt."""
    return Crop(*_centred(query, n_tokens, AROUND_SIZE), *_centred(key, n_tokens, AROUND_SIZE))


def from_box(rows: tuple[float, float], columns: tuple[float, float], n_tokens: int) -> Crop:
    """The crop of a box drawn in token positions (any order); too large ones keep their middle."""
    return Crop(*_range(rows, n_tokens), *_range(columns, n_tokens))


def _centred(position: int, n_tokens: int, size: int) -> tuple[int, int]:
    start = min(max(0, position - size // 2), max(0, n_tokens - size))
    return start, min(start + size, n_tokens)


def _range(ends: tuple[float, float], n_tokens: int) -> tuple[int, int]:
    low, high = sorted(round(end) for end in ends)
    if high - low + 1 > CROP_SIZE:
        return _centred((low + high + 1) // 2, n_tokens, CROP_SIZE)
    low = min(max(0, low), n_tokens - 1)
    return low, max(low + 1, min(high + 1, n_tokens))
