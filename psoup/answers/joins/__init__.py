"""Joins in answers: what the engine has joined ahead, and what a join may take."""
