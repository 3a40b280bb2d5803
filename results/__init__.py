"""Integers and Arrow: bitmaps, row ranges, what is known of a predicate, windows, answers."""
