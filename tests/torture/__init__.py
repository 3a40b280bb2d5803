"""Torture: a store runs while everything around it fails; afterwards every answer is proved.

`scripts/torture` runs lives one after the other; tests/torture/test_torture.py runs one in every
test run. A life has servers, an engine, publishers, registrars, readers and copies, and a seeded
list of faults. Acknowledged rows must be stored once, and every answer, also that of a copy, must
be the naive one at its position and NOW.
"""
