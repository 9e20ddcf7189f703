"""How the shipped checkpoints are trained and measured; everything is written through `checkpoint/`."""
