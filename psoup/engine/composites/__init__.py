"""Composites: the joins that registrations share, found ahead of time.

An executor does
    keys          the hash of a row's join key
    runs          rows of a leg by that hash, as `joins/<id>` keeps them
    rows          rows of a stem by their ids
    combining     rows that came, with rows that were there: whoever comes last finds the others
"""
