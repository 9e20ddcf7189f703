"""Measurements that are printed, not tested: run them with `make bench`."""
