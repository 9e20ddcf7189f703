"""Figures of one prompt's attention.

`maps` has the maps of one head, `heads` all heads at a glance, `tokens` cells, rows and positions,
`kernels` what a kernel does on the prompt.
"""

from mta_viz.figures.attention import heads, kernels, maps, tokens  # noqa: F401  (they get their names)
