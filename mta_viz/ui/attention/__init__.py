"""One head of a run, and views of it."""
