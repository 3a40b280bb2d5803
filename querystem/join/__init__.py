"""The inner join of several batches of rows: pure, over numpy and Arrow.

items and a condition
    │  factors       the condition is cut into factors; those of one item choose its rows
    │  order         which item is joined next
    │  methods       how: by equal keys (equality), by sorted values (ranges), or all pairs
    │  keys          values as arrays that compare plainly
    ▼
places of the rows of each combination

`semi` finds only which rows of an item have a partner.
"""

from __future__ import annotations

from querystem.join.factors import without_items
from querystem.join.joining import Joined, JoinStep, TooManyPairs, join
from querystem.join.methods import JoinMethod
from querystem.join.room import JoinRoom, TooManyBytes
from querystem.join.semi import Partnered, semi_join

__all__ = [
    "JoinMethod",
    "JoinRoom",
    "JoinStep",
    "Joined",
    "Partnered",
    "TooManyBytes",
    "TooManyPairs",
    "join",
    "semi_join",
    "without_items",
]
