"""Tenants of one store, each of which uses it at random."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Generic, TypeVar

from client_sdk import Client
from tests.support.system.fleet import Fleet
from tests.support.system.processes import RunningStore
from tests.support.system.story import Story

Action = Callable[[], None]


class Tenant:
    """One client at a time, over one server or another, so that what was acknowledged is known
    exactly. Chance decides what happens next, and a story tells what did."""

    def __init__(self, fleet: Fleet, name: str, seed: int) -> None:
        self.fleet = fleet
        self.name = name
        self.dice = Random(seed)
        self.story = Story(seed)
        self.position: bytes | None = None
        self.tally: Counter[str] = Counter()

    @property
    def actions(self) -> Mapping[Action, float]:
        """The actions that chance chooses from, and how often each is chosen."""
        raise NotImplementedError

    def acted(self) -> None:
        """It is called after each action."""

    def run(self, steps: int) -> None:
        """Raises AssertionError with the story where an answer is wrong."""
        self.told(*self.dice.choices([*self.actions], [*self.actions.values()], k=steps))

    def told(self, *actions: Action) -> None:
        try:
            for action in actions:
                action()
                self.acted()
        except Exception as problem:
            folder = self.fleet.running.folder
            told = self.story.tell(folder, f"{type(problem).__name__}: {problem}")
            raise AssertionError(told) from problem

    @property
    def client(self) -> Client:
        """One of the servers, which has to know all that another has acknowledged."""
        return self.client_of(self.dice.randrange(len(self.fleet.targets)))

    def client_of(self, place: int) -> Client:
        chosen = self.fleet.client(self.name, place)
        chosen.position = self.position
        return chosen


T = TypeVar("T", bound=Tenant)


@dataclass(frozen=True)
class Tenants(Generic[T]):
    running: RunningStore
    fleet: Fleet
    dice: Random
    each: list[T]

    def run(self, steps: int) -> None:
        for one in self.each:
            one.run(steps)

    @property
    def tally(self) -> Counter[str]:
        return sum((one.tally for one in self.each), self.fleet.tally)


@contextmanager
def store_of(folder: Path, seeds: range, make: Callable[[Fleet, int], T]) -> Iterator[Tenants[T]]:
    """A store with two servers and no engine yet, and a tenant for each seed."""
    with RunningStore(folder) as running, Fleet(running) as fleet:
        yield Tenants(running, fleet, Random(seeds.start), [make(fleet, seed) for seed in seeds])
