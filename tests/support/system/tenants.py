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
    """A tenant with one client at a time, over any of the servers, so that what was acknowledged is
    known exactly. Chance decides what happens next, and a story records it."""

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
        """Do what a subclass needs after each action."""

    def run(self, steps: int) -> None:
        """Raise AssertionError with the story if an answer is wrong."""
        self.told(*self.dice.choices([*self.actions], [*self.actions.values()], k=steps))

    def told(self, *actions: Action) -> None:
        try:
            for action in actions:
                action()
                self.acted()
        except Exception as problem:
            folder = self.fleet.running.folder
            report = self.story.tell(folder, f"{type(problem).__name__}: {problem}")
            raise AssertionError(report) from problem

    @property
    def client(self) -> Client:
        """A client of one of the servers, which has to know all that another has acknowledged."""
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
        for tenant in self.each:
            tenant.run(steps)

    @property
    def tally(self) -> Counter[str]:
        return sum((tenant.tally for tenant in self.each), self.fleet.tally)


@contextmanager
def store_of(folder: Path, seeds: range, make: Callable[[Fleet, int], T]) -> Iterator[Tenants[T]]:
    """Run a store with two servers and no engine yet, and give a tenant for each seed."""
    with RunningStore(folder) as running, Fleet(running) as fleet:
        yield Tenants(running, fleet, Random(seeds.start), [make(fleet, seed) for seed in seeds])
