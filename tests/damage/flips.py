"""Flips of every bit of a small store, one at a time, and what its readers return then.

Each file has readers that stand for all code that reads it. With one flipped bit each of them
returns what it returned before, or raises an error that names a file. This runs in a separate
process, since damaged Parquet makes some readers end the whole process.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psoup.store import CorruptStore, DataFile, LogTrimmed, Store
from psoup.store.delta import DeltaFolder
from psoup.store.delta.checksums import footer_size
from psoup.store.delta.reading import reader
from psoup.store.format import read_identity
from psoup.store.log.log import read_events

Read = Callable[[], Any]


@dataclass(frozen=True)
class Target:
    """A file, the bits of it that are worth flipping, and its readers."""

    path: Path
    bits: range
    pages: range
    readers: tuple[Read, ...]


def targets(root: Path) -> Iterator[Target]:
    store = Store.open(root)
    _, epoch = store.epochs.latest()
    stems = [store.stem(stream_id) for stream_id in epoch.streams]
    names = ["log", "epochs", *epoch.versions]
    for folder in [*map(store.table, names), *stems]:
        yield from _commits(root, folder)
        yield from _checkpoints(folder)
        for file in folder.snapshot().files.values():
            yield _data_file(store, folder, file)


def _commits(root: Path, folder: DeltaFolder) -> Iterator[Target]:
    for version in folder.versions():
        path = folder.log / f"{version:020d}.json"
        reads: list[Read] = [lambda at=version, of=folder: of.read_commit(at)]  # type: ignore[misc]
        if folder.root.name == "log":
            reads.append(lambda: read_identity(root))
        yield Target(path, range(8 * path.stat().st_size), range(0), tuple(reads))


def _checkpoints(folder: DeltaFolder) -> Iterator[Target]:
    """Yield the checkpoints: a damaged one is ignored, and the commits are read instead."""
    paths = [*folder.log.glob("*.checkpoint.*"), *folder.log.glob("_last_checkpoint")]
    for path in paths:
        size = 8 * path.stat().st_size
        yield Target(path, range(size), range(0), (folder.snapshot, lambda: folder.description))


def _data_file(store: Store, folder: DeltaFolder, file: DataFile) -> Target:
    path = folder.path_of(file)
    content = path.read_bytes()
    footer = footer_size(content[-8:])
    assert footer is not None
    pages = 8 * (len(content) - footer)
    source = reader(folder.root, file)
    reads: list[Read] = [
        lambda: reader(folder.root, file).whole(),
        lambda: reader(folder.root, file).read(source.metadata.schema.names[:3]),
        lambda: reader(folder.root, file).row_group(0),
        lambda: _statistics(reader(folder.root, file).metadata),
    ]
    if folder.root.name == "log":
        reads = [
            lambda: read_events(folder.root, file, 1),
            lambda: read_events(folder.root, file, 1, payloads=False),
        ]
    return Target(path, range(pages, 8 * len(content)), range(32, pages), tuple(reads))


def _statistics(metadata: Any) -> str:
    return str(metadata.to_dict())


def flip_bits(root: Path, seed: int, most: int | None) -> Counter[str]:
    """Flip bits of every file and restore them: all bits, or `most` of each file. In pages, one bit
    of each byte. Return the number of outcomes by kind.

    Raise AssertionError if a reader returns something wrong.
    """
    dice, outcomes = random.Random(seed), Counter[str]()
    for target in targets(root):
        expected = [read() for read in target.readers]
        content = target.path.read_bytes()
        bits = [*target.bits, *(start + dice.randrange(8) for start in target.pages[::8])]
        for bit in bits if most is None or most > len(bits) else dice.sample(bits, most):
            changed = bytearray(content)
            changed[bit // 8] ^= 1 << bit % 8
            target.path.write_bytes(changed)
            for read, right in zip(target.readers, expected, strict=True):
                outcomes[_outcome(read, right, target.path, bit)] += 1
        target.path.write_bytes(content)
    return outcomes


def _outcome(read: Read, expected: Any, path: Path, bit: int) -> str:
    try:
        content = read()
    except CorruptStore as error:
        assert path.name.split(".")[0] in str(error), (path, bit, error)
        return "named"
    except LogTrimmed:
        raise AssertionError((path, bit, "taken for trimmed")) from None
    if content == expected:
        return "right"
    assert isinstance(content, list) and _only_rows_lost(content, expected), (path, bit)
    return "hole"


def _only_rows_lost(entries: list[Any], expected: list[Any]) -> bool:
    """Return True if entries are as expected, except for payloads that are lost."""
    return all(
        entry == original or getattr(entry.event, "payload", b"") is None
        for entry, original in zip(entries, expected, strict=True)
    )
