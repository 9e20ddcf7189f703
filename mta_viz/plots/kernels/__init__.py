"""Figures of learned kernels: gallery, mosaics, cards, and the paper's own charts."""
