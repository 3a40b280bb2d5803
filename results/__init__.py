"""Integers and Arrow: sets of row ids, bitmaps of matches, windows and the order of rows.

A part of PSoup: `import psoup` looks for this word.
"""
