"""Trace or checkpoint -> frozen results: maps, kernels, predictions, health. Draws nothing."""
