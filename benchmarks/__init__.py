"""Measurements of a running store, each beside something measured in the same run."""
