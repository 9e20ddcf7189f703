"""The one room that runs models: lock, capture, Trace, scoring, generation, cost, and runs as files."""
