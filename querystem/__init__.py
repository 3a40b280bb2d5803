"""Queries: their language, their bound form, the kernel, the predicate index. Pure.

A part of PSoup: `import psoup` looks for this word.
"""
