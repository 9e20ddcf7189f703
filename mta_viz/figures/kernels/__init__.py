"""The figures of the Kernels page: the gallery, a kernel's card, a layer and its training, the paper's."""

from mta_viz.figures.kernels import card, gallery, layer, paper, training  # noqa: F401  (they get their names)
