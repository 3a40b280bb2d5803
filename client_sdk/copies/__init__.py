"""Copies of answers that a client keeps while it is away."""
