"""Integers and Arrow: sets of row ids, bitmaps of matches, windows and the order of rows."""
