"""What a model's learned kernels look like and do, from the weights alone: measures, names, nulls, probes."""
