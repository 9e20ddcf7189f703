"""How the shipped checkpoints are trained, written through `checkpoint/`. The app imports nothing of it."""
