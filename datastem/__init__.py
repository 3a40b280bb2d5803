"""Rows of streams: their types and schema, how batches are accepted, and how rows are held.

A part of PSoup: `import psoup` looks for this word.
"""
