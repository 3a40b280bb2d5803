"""Predicates read from their stored texts in columns, without an object for each."""
