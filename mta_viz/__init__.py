"""Look inside Multi-Token Attention: the notebook API, loaded on first use."""

__version__ = "0.1.0"
