"""A small town of roads, and vehicles that drive around in it."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

# The town is a grid of crossings, each a little off its place. Distances are in metres.
COLUMNS, ROWS = 9, 6
BLOCK_METRES = 100.0
WIDTH_METRES, HEIGHT_METRES = COLUMNS * BLOCK_METRES, ROWS * BLOCK_METRES
MIDDLE_METRES = WIDTH_METRES / 2
_OFF_METRES = 22.0
_MISSING_ROADS = 0.14

Crossing = tuple[float, float]


@dataclass(frozen=True)
class Town:
    """Crossings, and for each the numbers of those that a road leads to."""

    crossings: list[Crossing]
    roads: list[list[int]]

    @classmethod
    def build(cls, dice: random.Random) -> Town:
        crossings = [
            (
                (column + 0.5) * BLOCK_METRES + dice.uniform(-_OFF_METRES, _OFF_METRES),
                (row + 0.5) * BLOCK_METRES + dice.uniform(-_OFF_METRES, _OFF_METRES),
            )
            for row in range(ROWS)
            for column in range(COLUMNS)
        ]
        roads: list[list[int]] = [[] for _ in crossings]
        for place in range(len(crossings)):
            row, column = divmod(place, COLUMNS)
            for neighbour, exists in (
                (place + 1, column + 1 < COLUMNS),
                (place + COLUMNS, row + 1 < ROWS),
            ):
                # The outer roads stay, so that every crossing can be reached.
                outer = row in (0, ROWS - 1) and neighbour == place + 1
                outer |= column in (0, COLUMNS - 1) and neighbour == place + COLUMNS
                if exists and (outer or dice.random() > _MISSING_ROADS):
                    roads[place].append(neighbour)
                    roads[neighbour].append(place)
        return cls(crossings, roads)

    def lines(self) -> list[tuple[Crossing, Crossing]]:
        """Return each road once, from crossing to crossing."""
        return [
            (self.crossings[place], self.crossings[neighbour])
            for place, neighbours in enumerate(self.roads)
            for neighbour in neighbours
            if place < neighbour
        ]


class Vehicle:
    """Drives from crossing to crossing, and turns back only at a dead end."""

    def __init__(self, name: str, town: Town, dice: random.Random) -> None:
        self.name = name
        self._town, self._dice = town, dice
        self._speed = dice.uniform(9.0, 17.0)
        self._from = dice.choice(
            [place for place, neighbours in enumerate(town.roads) if neighbours]
        )
        self._to = dice.choice(town.roads[self._from])
        self._driven = 0.0

    def drive(self, seconds: float) -> None:
        self._driven += self._speed * seconds
        while self._driven >= (length := self._length()):
            self._driven -= length
            choices = [place for place in self._town.roads[self._to] if place != self._from]
            self._from, self._to = self._to, self._dice.choice(choices or [self._from])

    def position(self) -> Crossing:
        (x, y), (other_x, other_y) = self._ends()
        share = self._driven / self._length()
        return round(x + (other_x - x) * share, 1), round(y + (other_y - y) * share, 1)

    def _ends(self) -> tuple[Crossing, Crossing]:
        return self._town.crossings[self._from], self._town.crossings[self._to]

    def _length(self) -> float:
        return math.dist(*self._ends())
