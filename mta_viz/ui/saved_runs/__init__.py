"""A run saved from the app and opened in it again."""
