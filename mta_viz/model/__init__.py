"""Checkpoint -> hooked model: pure operations, attention, transformer, and the list of stages."""
