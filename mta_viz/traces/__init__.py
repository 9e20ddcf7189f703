"""Runs saved as files: a prompt's tokens, residuals and chosen maps, opened again anywhere."""
