"""The Compare page: two models, prompts or training steps side by side."""
