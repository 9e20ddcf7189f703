"""The shapes of learned kernels, measured: scores, names, and how many names chance would give."""
