"""Bytes on disk -> `Checkpoint`. One file per format; every layout is normalised here, once."""
