"""Quantities as text, the same in the app and on the command line."""


def size_text(n_bytes: int) -> str:
    """`9.9 kB`, `6.8 MB`, `1.2 GB`: decimal units, as file managers show them."""
    for size, unit in ((1e9, "GB"), (1e6, "MB")):
        if n_bytes >= size:
            return f"{n_bytes / size:,.1f} {unit}"
    return f"{n_bytes / 1e3:.1f} kB"
