"""Tokens of a text, and what single ones mean: names, types, constants and durations."""
