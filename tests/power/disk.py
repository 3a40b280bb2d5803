"""The replay of a journal up to a moment: it makes the folder that a power cut might leave then.

What was synced is durable: a file's content up to its size at its sync, a folder's names as of its
sync. Every other change of a name has, or has not, reached the disk, and other content may be
there, torn, zeroes or missing, each at random. Real file systems lose less, since they keep some
order.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_DURABLE_SHARES = (0.0, 0.5, 0.9, 1.0)


@dataclass(slots=True)
class _Folder:
    durable: dict[str, int | None] = field(default_factory=dict)
    pending: list[tuple[str, bool, int | None]] = field(default_factory=list)

    def sync(self, reaches_disk: Callable[[], bool] = lambda: True) -> None:
        """Let each pending change reach the disk for which `reaches_disk` returns True."""
        for name, exists, inode in self.pending:
            if not reaches_disk():
                continue
            if exists:
                self.durable[name] = inode
            else:
                self.durable.pop(name, None)
        self.pending = []


class Recording:
    """A recorded journal, which can be cut anywhere in [0, len]."""

    def __init__(self, journal: Path) -> None:
        self._inodes = journal / "inodes"
        lines = (journal / "journal").read_bytes().splitlines()
        self.events: list[list[Any]] = [json.loads(line) for line in lines]

    def __len__(self) -> int:
        return len(self.events)

    def marks(self, cut: int) -> list[Any]:
        """Return the acknowledgements before the cut."""
        return [event[1] for event in self.events[:cut] if event[0] == "mark"]

    def near(self, ending: str) -> list[int]:
        """Return the moments at which a name with this ending was made or removed."""
        return [
            number
            for number, event in enumerate(self.events)
            if event[0] in ("name", "drop") and event[2].endswith(ending)
        ]

    def restore(self, cut: int, target: Path, rng: random.Random) -> None:
        """Make `target` the folder that a power cut after `cut` events leaves."""
        folders, synced = self._replay(cut)
        share = rng.choice(_DURABLE_SHARES)
        for name in sorted(folders):
            folders[name].sync(lambda: rng.random() < share)
        self._make(".", target, folders, synced, rng)

    def _replay(self, cut: int) -> tuple[dict[str, _Folder], dict[int, int]]:
        folders: dict[str, _Folder] = {".": _Folder()}
        synced: dict[int, int] = {}
        for event in self.events[:cut]:
            match event:
                case ["name", folder, name, inode]:
                    folders.setdefault(folder, _Folder()).pending.append((name, True, inode))
                case ["drop", folder, name]:
                    folders.setdefault(folder, _Folder()).pending.append((name, False, None))
                case ["folder", folder]:
                    folders.setdefault(folder, _Folder()).sync()
                case ["file", inode, size]:
                    synced[inode] = max(size, synced.get(inode, 0))
        return folders, synced

    def _make(
        self,
        folder: str,
        target: Path,
        folders: dict[str, _Folder],
        synced: dict[int, int],
        rng: random.Random,
    ) -> None:
        target.mkdir(parents=True, exist_ok=True)
        for name, inode in sorted(folders.get(folder, _Folder()).durable.items()):
            if inode is None:
                inner = name if folder == "." else f"{folder}/{name}"
                self._make(inner, target / name, folders, synced, rng)
            else:
                self._make_file(inode, target / name, synced.get(inode, 0), rng)

    def _make_file(self, inode: int, target: Path, durable: int, rng: random.Random) -> None:
        source = self._inodes / str(inode)
        if source.stat().st_size <= durable:
            os.link(source, target)
        else:
            target.write_bytes(_torn(source.read_bytes(), durable, rng))


def _torn(content: bytes, durable: int, rng: random.Random) -> bytes:
    """Return the content with the bytes after its durable ones in a possible state."""
    undurable = len(content) - durable
    whole, half = content[durable:], content[durable : durable + undurable // 2]
    return content[:durable] + rng.choice(
        [b"", half, bytes(undurable), half + bytes(undurable // 2), whole]
    )
