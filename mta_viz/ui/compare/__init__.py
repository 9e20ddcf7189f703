"""Two models, prompts or training steps side by side."""
