"""The result of a sync."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from client_sdk._exceptions import UnknownCopy
from client_sdk.copies._queue.batches import Sent
from client_sdk.copies._sync.items import Change


@dataclass(frozen=True, slots=True)
class Synced(Mapping[str, Change]):
    """The result of a sync, or of one round of a watch: a `Change` for each copy, by name.

    A copy that stayed the same is there too, with the status "unchanged". A name that was not part
    of the sync raises UnknownCopy, which is a KeyError. `sent` is what the sync sent of the queue
    before. `evicted` names the copies whose rows were removed afterwards, because the file has a
    limit. `received_bytes` is the size of the messages of the sync as they were received; a watch
    does not count them.
    """

    changes: dict[str, Change]
    sent: Sent = Sent()
    received_bytes: int = 0
    evicted: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """True if every copy is up to date: none is incomplete or refused."""
        return all(change.status in ("changed", "unchanged") for change in self.changes.values())

    @property
    def changed(self) -> list[str]:
        """The names of the copies that changed."""
        return [name for name, change in self.changes.items() if change.status == "changed"]

    def __getitem__(self, name: str) -> Change:
        try:
            return self.changes[name]
        except KeyError:
            names = ", ".join(self.changes) or "no copies"
            raise UnknownCopy(
                f"{name!r} was not part of this sync, which had {names}; "
                "name it in `only`, or leave `only` out"
            ) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self.changes)

    def __len__(self) -> int:
        return len(self.changes)
