"""A store in memory, and one moment of it: what answers are made from."""
