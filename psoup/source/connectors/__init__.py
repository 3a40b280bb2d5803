"""Connectors: places to read from, each opened at a mark."""
