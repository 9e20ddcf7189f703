"""Two runs or two models beside each other: answers, paired heads, maps, kernels."""
