"""What conjunctions ask for besides their fixed operands and ranges; equal rests are one."""

from __future__ import annotations

from dataclasses import dataclass

from datastem.arrays import Mask
from querystem.index.batch import Batch
from querystem.index.formula import ALWAYS, Formula
from querystem.index.hashed.segment import NO_REST
from querystem.index.truth import truth


@dataclass(slots=True)
class _Rest:
    formula: Formula
    users: int = 0


class Rests:
    """Numbers are used again after a rest has gone."""

    def __init__(self) -> None:
        self._rests: dict[int, _Rest] = {}
        self._numbers: dict[Formula, int] = {}
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._rests)

    def acquire(self, formula: Formula) -> int:
        if formula == ALWAYS:
            return NO_REST
        number = self._numbers.get(formula)
        if number is None:
            number = self._free.pop() if self._free else len(self._rests)
            self._numbers[formula] = number
            self._rests[number] = _Rest(formula)
        self._rests[number].users += 1
        return number

    def release(self, number: int) -> None:
        if number == NO_REST:
            return
        rest = self._rests[number]
        rest.users -= 1
        if not rest.users:
            del self._rests[number], self._numbers[rest.formula]
            self._free.append(number)

    def formula(self, number: int) -> Formula:
        return self._rests[number].formula

    def mask(self, number: int, batch: Batch) -> Mask:
        return truth(self._rests[number].formula, batch)

    def _check(self, users: dict[int, int]) -> None:
        assert users == {number: rest.users for number, rest in self._rests.items()}
        assert self._numbers == {rest.formula: number for number, rest in self._rests.items()}
        numbers = [*self._rests, *self._free]
        assert sorted(numbers) == list(range(len(numbers)))
