"""Prompt generators with gold answers: seeded, on any device, independent of hash order."""
