"""Helpers that read the documentation."""
