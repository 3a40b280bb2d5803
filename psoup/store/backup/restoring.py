"""A new store out of a back-up, as of its end or of an earlier commit of its log.

The store gets a new incarnation by one epoch, so clients notice that later history is gone. Until
that epoch is there, a note in the folder keeps servers and engines out. A restore that was
interrupted is run again and goes on.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from datastem.instants import format_instant
from psoup.store.backup.copying import FileCopier, FileMark
from psoup.store.backup.erased import ErasureList, apply_erasures
from psoup.store.backup.folder import FolderFiles
from psoup.store.backup.generations import Generation, Header, now_micros
from psoup.store.backup.making import NoProgress, Progress
from psoup.store.backup.targets import Place, read_target
from psoup.store.delta import DeltaFolder
from psoup.store.delta.durable import make_folder, remove, replace_file, sync_folder
from psoup.store.errors import BackupFailed
from psoup.store.layout import FORMAT
from psoup.store.log.log import Log
from psoup.store.log.position import IDENTITY_BYTES, PositionCodec
from psoup.store.presence import RESTORE_NOTE
from psoup.store.store import Store

# The digits of a position in hexadecimal, as the CLI prints it.
POSITION_DIGITS = 2 * 24
_LOG_COMMITS = "log/_delta_log/"


@dataclass(frozen=True, slots=True)
class Instant:
    """Everything stamped up to this instant, in microseconds."""

    micros: int


@dataclass(frozen=True, slots=True)
class LogVersion:
    """Everything up to and including this version of the log. `identity`, in hexadecimal digits, is
    that of the store and incarnation in a position; empty if a version alone was given."""

    number: int
    identity: str = ""

    @classmethod
    def of_position(cls, content: bytes) -> LogVersion:
        """Return the commit of a position that an answer had. Raise ForeignPosition."""
        identity = content[:IDENTITY_BYTES]
        marked = PositionCodec(identity).decode(content)
        return cls(marked.position.version, identity.hex())


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """A restored store: the back-up it is from, and the last version of its log."""

    generation: Generation
    log_end: int
    files: int
    size: int
    erased_rows: int = 0


def restore(
    target: Place,
    root: Path,
    at: Instant | LogVersion | None = None,
    progress: Progress | None = None,
    erasures: ErasureList | None = None,
) -> RestoreReport:
    """Make a store in the missing or empty folder `root` from a back-up: the newest in `target`, or
    the one that reaches `at`. Rows of `erasures` are erased in it before others can use it.

    Raise BackupFailed, StoreError or OSError. Run it again after an interruption.
    """
    root, progress = root.absolute(), progress or NoProgress()
    with read_target(target) as generations:
        generation = _choose(target, generations, at)
        if generation.header.format != FORMAT:
            raise BackupFailed(
                f"{generation.place} is of a store of format {generation.header.format}; this "
                f"version reads format {FORMAT}"
            )
        marks = generation.marks()
        log_end, marks = _cut(generation, at, marks)
        _begin(root, generation, log_end)
        _copy(generation, root, marks, progress)
        erased_rows = 0 if erasures is None else apply_erasures(Store(root), erasures)
        _begin_incarnation(root, generation)
    return RestoreReport(generation, log_end, len(marks), _size(marks), erased_rows)


def _choose(
    target: Place, generations: Iterable[Generation], at: Instant | LogVersion | None
) -> Generation:
    """Return the newest back-up whose epoch is not after `at`."""
    generations = list(generations)
    if isinstance(at, LogVersion) and at.identity:
        if all(copy.header.identity != at.identity for copy in generations):
            raise BackupFailed("the position belongs to another store, or another incarnation")
        generations = [copy for copy in generations if copy.header.identity == at.identity]
    if not generations:
        raise BackupFailed(f"{target} holds no finished back-up")
    early = [copy for copy in generations if _is_before(copy, at)]
    if not early:
        first = generations[0].header
        raise BackupFailed(
            f"the oldest back-up begins later: at {format_instant(first.clock)}, log version "
            f"{first.log_version}"
        )
    generation, header = early[-1], early[-1].header
    match at:
        case Instant(micros):
            is_missing = header.last_stamp < micros and generation != generations[-1]
        case LogVersion(number, _):
            is_missing = header.log_end < number
        case None:
            is_missing = False
    if is_missing:
        raise BackupFailed(
            f"no back-up holds that point: {generation.name} ends at "
            f"{format_instant(header.last_stamp)}, log version {header.log_end}"
        )
    return generation


def _is_before(generation: Generation, at: Instant | LogVersion | None) -> bool:
    match at:
        case Instant(micros):
            return generation.header.clock <= micros
        case LogVersion(number, _):
            return generation.header.log_version <= number
    return True


def _cut(
    generation: Generation, at: Instant | LogVersion | None, marks: dict[str, FileMark]
) -> tuple[int, dict[str, FileMark]]:
    """Return the last version of the log that is restored, and the marks of the files that are."""
    header = generation.header
    if at is None or (isinstance(at, Instant) and at.micros >= header.last_stamp):
        return header.log_end, marks
    logged = {path: mark for path, mark in marks.items() if path.startswith("log/")}
    with generation.files.local(logged) as folder:
        log = Log(DeltaFolder(folder / "log"), sync=False)
        log_end = at.number if isinstance(at, LogVersion) else _last_until(log, header, at.micros)
        remaining = log.folder.snapshot(log_end).files
    return log_end, {
        path: mark
        for path, mark in marks.items()
        if not _is_after(path, log_end)
        and (not path.startswith("log/part-") or path.removeprefix("log/") in remaining)
    }


def _last_until(log: Log, header: Header, micros: int) -> int:
    """Return the last version of a log up to an instant."""
    # Stamps never go back, so the first commit with a later one ends the log before it.
    for version in range(header.log_version + 1, header.log_end + 1):
        entries = log.read(version, payloads=False)
        if entries and entries[-1].stamp > micros:
            return version - 1
    return header.log_end


def _begin(root: Path, generation: Generation, log_end: int) -> None:
    """Write the note of the restore. Raise BackupFailed if the folder has anything but what the
    same restore has begun."""
    note = json.dumps({"back-up": generation.name, "log_end": log_end}).encode()
    if root.exists() and any(root.iterdir()):
        try:
            begun = (root / RESTORE_NOTE).read_bytes()
        except FileNotFoundError:
            raise BackupFailed(f"{root} is not empty; restore into an empty folder") from None
        if begun != note:
            raise BackupFailed(
                f"another restore into {root} was begun and has not ended; remove the folder first"
            )
        return
    make_folder(root, levels=1)
    replace_file(root / RESTORE_NOTE, note)


def _copy(
    generation: Generation, root: Path, marks: dict[str, FileMark], progress: Progress
) -> None:
    progress.begin(_size(marks))
    restored = FolderFiles(root)

    def copy(path: str, mark: FileMark) -> bool:
        if restored.has(path, mark):
            return False
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        generation.files.give(path, mark, root / path)
        return True

    FileCopier(generation.files.threads, report=progress.advance).run(marks, copy)
    restored.sync_folders(marks)


def _is_after(path: str, log_end: int) -> bool:
    """Return True for a commit of the log after a version."""
    number = path.removeprefix(_LOG_COMMITS).removesuffix(".json")
    return path == f"{_LOG_COMMITS}{number}.json" and int(number) > log_end


def _begin_incarnation(root: Path, generation: Generation) -> None:
    """Publish an epoch with a new incarnation, and let others use the store."""
    store = Store(root)
    version, epoch = store.epochs.latest()
    # Otherwise an interrupted restore has published it already.
    if epoch.number == generation.header.epoch:
        epoch = replace(
            epoch,
            number=epoch.number + 1,
            kind="restore",
            made_at=now_micros(),
            incarnation=uuid.uuid4().hex,
        )
        store.epochs.append(version + 1, epoch)
    remove([root / RESTORE_NOTE])
    sync_folder(root)


def _size(marks: dict[str, FileMark]) -> int:
    return sum(mark.size for mark in marks.values())
