"""A store lives while everything around it fails; afterwards every answer it gave is proved.

`scripts/torture` runs lives one after the other; tests/torture/test_torture.py runs one in every
test run. A life has servers, an engine, publishers, registrars, readers and copies, and a seeded
list of faults. What the store acknowledged must be there once, and every answer, also that of a
copy, must be the naive one at the position and the NOW it named.
"""
