"""What the engine has set aside because it fails: predicates, and composites.

A predicate in quarantine is in no index and covers no row, so servers compute it by themselves; a
row policy whose predicate is here shows nothing. A composite in quarantine is not found ahead. The
epoch names each with the reason. It ends when an operator releases it, or with its last user.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import cached_property

PREDICATE, COMPOSITE = "predicate", "composite"
REASON_CHARACTERS = 300
# Errors of the machine rather than of what it works on: the same work may succeed next time.
MACHINE_ERRORS = (MemoryError, OSError)


@dataclass(frozen=True, slots=True)
class QuarantineEntry:
    """A predicate of a stream or of a composite, or a composite itself, that fails. `since` is the
    stamp of the log at which it was set aside, and `position` the last one, packed, that the work
    which failed had consumed: only a release after it counts."""

    kind: str
    id: int
    stream_id: int
    reason: str
    since: int = 0
    position: int = 0

    @property
    def name(self) -> str:
        """The name that an operator releases it by."""
        return f"{self.kind}-{self.id}"


@dataclass(frozen=True)
class Quarantine:
    """All that is set aside, in the order it was."""

    entries: tuple[QuarantineEntry, ...] = ()

    @cached_property
    def predicates(self) -> frozenset[int]:
        """The ids of the predicates among them."""
        return frozenset(entry.id for entry in self.entries if entry.kind == PREDICATE)

    def of_stream(self, stream_id: int) -> list[int]:
        """Return the ids of the predicates among them that are of one stream or composite."""
        of_stream = (entry for entry in self.entries if entry.stream_id == stream_id)
        return [entry.id for entry in of_stream if entry.kind == PREDICATE]

    def find(self, kind: str, id_: int) -> QuarantineEntry | None:
        return next(
            (entry for entry in self.entries if (entry.kind, entry.id) == (kind, id_)), None
        )

    def add(self, entries: Iterable[QuarantineEntry]) -> Quarantine:
        """Add entries; one takes the place of another of its name."""
        added = {entry.name: entry for entry in entries}
        return Quarantine((*self.release(added).entries, *added.values()))

    def release(self, names: Collection[str], position: int | None = None) -> Quarantine:
        """Take entries out by name, at a position of the log. Those that failed with what came up
        to it stay: their work is taken again from an earlier epoch, and meets the release again."""
        return self.only(
            lambda entry: (
                entry.name not in names or (position is not None and position <= entry.position)
            )
        )

    def only(self, stays: Callable[[QuarantineEntry], bool]) -> Quarantine:
        remaining = tuple(filter(stays, self.entries))
        return self if len(remaining) == len(self.entries) else Quarantine(remaining)


EMPTY_QUARANTINE = Quarantine()


def reason_of(error: BaseException) -> str:
    """Describe an error in one line of printable ASCII, so that it can be stored and shown
    anywhere: an error may quote what a caller sent."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text.encode("unicode_escape").decode()[:REASON_CHARACTERS]
