"""How sure a measured share is: the Wilson interval. Owns no task."""

import math

Z_95 = 1.959963984540054  # two-sided 95 % quantile of the normal distribution


def wilson_interval(hits: int, n: int) -> tuple[float, float]:
    """95 % Wilson score interval of the share `hits` / `n`, both ends within [0, 1].

    Unlike the normal approximation it is not empty at 0 or n hits. Raises ValueError when n < 1
    or `hits` lies outside 0..n.
    """
    if n < 1 or not 0 <= hits <= n:
        raise ValueError(f"{hits} hits of {n}: expected n of at least 1 and hits within 0..n")
    share, z2 = hits / n, Z_95**2
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = Z_95 / (1 + z2 / n) * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    return max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half))
