"""Predicates that fix operands by equality, which are found by hash."""
