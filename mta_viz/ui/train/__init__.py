"""The Train page: from a plain model to its own kernels, trained by a process of their own beside the app."""
