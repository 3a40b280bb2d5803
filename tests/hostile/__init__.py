"""Hostile input: whatever is sent gets an answer or a refusal, and nobody else's rows.

Thousands of cases in every run; a million with `-m soak`. A case follows from its number, so a
failure names all that is needed to see it again.
"""
