"""The Kernels page: gallery, one kernel's card, one layer, training, paper figures, definitions."""
