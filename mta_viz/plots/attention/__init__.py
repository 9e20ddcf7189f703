"""Figures of one prompt's attention: maps, strips, rows, text, heads, predictions, sums."""
