"""Replays a journal up to a moment, and makes the folder that a power cut then might leave.

Durable is what was synced: a file's content up to its size at its sync, a folder's names as of its
sync. Of everything else each name that came or went has, or has not, reached the disk, and content
may be there, torn, zeroes or missing, each by itself and as the random numbers have it. That is
more than file systems do, which keep some order.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_KEPT = (0.0, 0.5, 0.9, 1.0)


@dataclass(slots=True)
class _Folder:
    durable: dict[str, int | None] = field(default_factory=dict)
    pending: list[tuple[str, bool, int | None]] = field(default_factory=list)

    def sync(self, kept: Callable[[], bool] = lambda: True) -> None:
        """Each change that has not reached the disk yet does, if it is `kept`."""
        for name, there, inode in self.pending:
            if not kept():
                continue
            if there:
                self.durable[name] = inode
            else:
                self.durable.pop(name, None)
        self.pending = []


class Recording:
    """What was recorded, to be cut anywhere in [0, len]."""

    def __init__(self, journal: Path) -> None:
        self._inodes = journal / "inodes"
        lines = (journal / "journal").read_bytes().splitlines()
        self.events: list[list[Any]] = [json.loads(line) for line in lines]

    def __len__(self) -> int:
        return len(self.events)

    def marks(self, cut: int) -> list[Any]:
        """What clients had been told before the cut."""
        return [event[1] for event in self.events[:cut] if event[0] == "mark"]

    def near(self, ending: str) -> list[int]:
        """The moments at which a name that ends so came or went."""
        return [
            number
            for number, event in enumerate(self.events)
            if event[0] in ("name", "drop") and event[2].endswith(ending)
        ]

    def restore(self, cut: int, target: Path, rng: random.Random) -> None:
        """Makes `target` the folder that a power cut after so many events leaves."""
        folders, synced = self._replay(cut)
        kept = rng.choice(_KEPT)
        for name in sorted(folders):
            folders[name].sync(lambda: rng.random() < kept)
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
        kept = self._inodes / str(inode)
        if kept.stat().st_size <= durable:
            os.link(kept, target)
        else:
            target.write_bytes(_torn(kept.read_bytes(), durable, rng))


def _torn(content: bytes, durable: int, rng: random.Random) -> bytes:
    """The content with what lies behind its durable bytes as it may be."""
    rest = len(content) - durable
    whole, half = content[durable:], content[durable : durable + rest // 2]
    return content[:durable] + rng.choice([b"", half, bytes(rest), half + bytes(rest // 2), whole])
