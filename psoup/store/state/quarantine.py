"""The quarantine: predicates and composites that the engine has set aside because they fail.

A predicate in quarantine is in no index, and its coverage ends with the rows it has met, so servers
compute later rows themselves. A row policy whose predicate is in quarantine shows no rows. A
composite in quarantine is not maintained. The epoch names each entry with its reason. An entry ends
when an operator releases it, or with its last registration.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

PREDICATE, COMPOSITE = "predicate", "composite"
REASON_CHARACTERS = 300
# Errors of the machine rather than of the work: the same work may succeed next time.
MACHINE_ERRORS = (MemoryError, OSError)


@dataclass(frozen=True, slots=True)
class QuarantineEntry:
    """A failing predicate of a stream or composite, or a failing composite. `since` is the stamp of
    the log at which it was set aside. `position` is the last position, packed, that the failed work
    had consumed: only a release after it counts."""

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
    """All quarantine entries, oldest first."""

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
        """Return the quarantine with further entries; each replaces the one with its name."""
        added = {entry.name: entry for entry in entries}
        return Quarantine((*self.release(added).entries, *added.values()))

    def release(self, names: Collection[str], position: int | None = None) -> Quarantine:
        """Return the quarantine without the named entries, released at a position of the log.

        An entry stays if its failed work had consumed that position: the work is repeated from an
        earlier epoch, and meets the release again.
        """
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
    """Return the kind of an error and where it was raised, as one line of printable ASCII. Its
    message is left out, since it may quote a value of a row."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if _own_path(frame)]
    text = type(error).__name__
    if own:
        text += f" in {_own_path(own[-1])}, line {own[-1].lineno}"
    if frames and (not own or frames[-1] is not own[-1]):
        text += f", by {Path(frames[-1].filename).name}"
    return text.encode("unicode_escape").decode()[:REASON_CHARACTERS]


def _own_path(frame: traceback.FrameSummary) -> str:
    """Return the path of a frame within the product; empty for code of others."""
    parts = Path(frame.filename).parts
    places = [place for place, part in enumerate(parts) if part in _OWN_FOLDERS]
    return "/".join(parts[places[-1] :]) if places else ""


# Of the innermost folder of them that a file is in: psoup/store/…, not …/psoup/checkout/….
_OWN_FOLDERS = ("psoup", "querystem", "datastem", "results")
