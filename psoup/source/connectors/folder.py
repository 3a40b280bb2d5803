"""Files that are dropped into a folder. Each file is a partition, and is read once."""

from __future__ import annotations

import errno
import glob
import hashlib
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from psoup.source.connectors.marks import MarkForm
from psoup.source.connectors.partition import Context, Partition, Records, stored_mark
from psoup.source.errors import BadInput, BadSettings, PlaceLost, SourceAway
from psoup.source.feeding.piece import Mark, Piece, encode_mark, first_piece
from psoup.source.lag import Lag
from psoup.source.mapping import RowMapping, check_metadata, load_json
from psoup.source.readers import FORMATS, FileChunk, Options, read
from psoup.source.readers.chunk import OP

# A file is taken when it has not changed for this long.
QUIET_SECONDS = 2.0
# Files that are deleted or moved do not come again.
LEASE = timedelta(days=30)
_HASH_BYTES = 1 << 20
_PATH_CHARACTERS = 500
_DONE_KEYS = {"done": bool, "path": str, "size": int, "mtime": int, "inode": int}
_FORM = MarkForm(("earliest", "latest"), '{"row": 18}', optional=_DONE_KEYS)


@dataclass(frozen=True, slots=True)
class Stamp:
    """The size, time of change and inode of a file: what is equal if it did not change."""

    size: int
    mtime_ns: int
    inode: int

    @classmethod
    def of(cls, path: Path) -> Stamp:
        stat = path.stat()
        return cls(stat.st_size, stat.st_mtime_ns, stat.st_ino)

    def mark(self, path: Path) -> Mark:
        """Return the mark of a file whose rows are all in the store."""
        name = text_of(path)[-_PATH_CHARACTERS:]
        return dict(
            zip(_DONE_KEYS, (True, name, self.size, self.mtime_ns, self.inode), strict=True)
        )


class FolderConnector:
    """Files that match a pattern, in the order of their times and names.

    A file's publisher is named after its path, size and content, so that a file is read once, and
    a changed one again.
    """

    look_seconds = 1.0
    parallel = 1
    fresh_partitions = True

    def __init__(self, context: Context) -> None:
        settings = context.settings
        self._context = context
        self._pattern = str(settings.path("pattern"))
        self._after = settings.text("after", "keep")
        if self._after not in ("keep", "delete") and not self._after.startswith("move:"):
            raise BadSettings('after: write "keep", "delete" or "move:FOLDER"')
        form = "jsonl" if settings.format == "json" else settings.format
        if form and form not in FORMATS:
            raise BadSettings(f"format: one of {', '.join(FORMATS)}")
        self._options = Options(
            rename={path: column for column, path in settings.columns.items()},
            null=settings.null,
            lenient=True,
            format=form,
            delimiter=settings.delimiter,
            encoding=settings.encoding,
            parse=settings.parse,
        )
        check_metadata(settings.columns, frozenset())
        self.mapping = RowMapping(context.stream, settings.columns, settings.parse)
        # Since when each file is as it is now; and the digests of files.
        self._stamps: dict[Path, tuple[Stamp, float]] = {}
        self._digests: dict[tuple[Path, Stamp], str] = {}
        self._finished: set[tuple[Path, Stamp]] = set()
        # Of the last look at the lag: unread files, and how many there have been.
        self._unread: set[tuple[Path, Stamp]] = set()
        self._file_count = 0

    @property
    def left_out(self) -> Mapping[str, int]:
        return self.mapping.left_out

    def partitions(self, records: Records) -> list[Partition]:
        partitions = list[Partition]()
        for path, stamp, is_done in self._files(records):
            # A file that was read and not deleted or moved, since the process ended, is left to do.
            if is_done and self._after == "keep":
                continue
            try:
                partitions.append(self._partition(path, stamp))
            except FileNotFoundError:
                continue
            except OSError as error:
                if not partitions:
                    raise SourceAway(f"{text_of(path)} can't be read: {error.strerror}") from None
                # Files are read in their order, so first those before it.
                break
        return partitions

    def _files(self, records: Records) -> list[tuple[Path, Stamp, bool]]:
        """Return the files that are not finished in their order, and whether their rows are in the
        store."""
        done = {
            encode_mark({name: mark.get(name) for name in _DONE_KEYS})
            for mark in map(stored_mark, records.values())
        }
        files = [
            (path, stamp, encode_mark(stamp.mark(path)) in done)
            for path, stamp in self._quiet()
            if (path, stamp) not in self._finished
        ]
        return sorted(files, key=lambda file: (file[1].mtime_ns, str(file[0])))

    def _quiet(self) -> list[tuple[Path, Stamp]]:
        """Return the files that have not changed for QUIET_SECONDS."""
        now, stamps = time.monotonic(), dict[Path, tuple[Stamp, float]]()
        for path in self._matches():
            try:
                stamp = Stamp.of(path)
            except OSError:
                continue
            # A file that was renamed to its place may have been quiet for long.
            age = max(0.0, time.time() - stamp.mtime_ns / 1e9)
            before = self._stamps.get(path)
            stamps[path] = before if before and before[0] == stamp else (stamp, now - age)
        self._stamps = stamps
        self._digests = {key: digest for key, digest in self._digests.items() if key[0] in stamps}
        self._finished = {key for key in self._finished if key[0] in stamps}
        return [(path, stamp) for path, (stamp, at) in stamps.items() if now - at >= QUIET_SECONDS]

    def _matches(self) -> list[Path]:
        """Return the files that match the pattern."""
        paths = map(Path, glob.glob(self._pattern, recursive=True))
        return sorted(path for path in paths if path.is_file())

    def _partition(self, path: Path, stamp: Stamp) -> Partition:
        digest = self._digests.get((path, stamp))
        if digest is None:
            digest = self._digests[path, stamp] = file_digest(path)

        def begin(text: str) -> Mark:
            if text == "earliest":
                return {}
            mark = {"done": True} if text == "latest" else _FORM.read(text)
            return stamp.mark(path) if mark.get("done") else mark

        return Partition(
            f"{self._context.settings.name}/{digest}",
            lambda mark: FileReader(self, path, stamp, is_done=bool(mark.get("done"))),
            begin,
            lease=None if self._after == "keep" else LEASE,
            finished=lambda: self._finish(path, stamp),
        )

    def _finish(self, path: Path, stamp: Stamp) -> None:
        """Delete or move a file whose rows are in the store, unless it has changed since."""
        # Not tried again by this process.
        self._finished.add((path, stamp))
        if self._after == "keep":
            return
        try:
            if Stamp.of(path) != stamp:
                return
            if self._after == "delete":
                path.unlink()
                return
            folder = self._context.settings.folder / Path(self._after.removeprefix("move:"))
            folder.mkdir(parents=True, exist_ok=True)
            move_file(path, _free(folder / path.name))
        except FileNotFoundError:
            return
        except OSError as error:
            self._context.notice(
                f"{text_of(path)} is in the store, and stays where it is: {error.strerror}"
            )

    def chunks(self, path: Path) -> Iterator[FileChunk]:
        """Yield the chunks of a file."""
        stream, options = self._context.stream, self._options
        return read(path, stream, options, lambda position: None, self._fit)

    def _fit(self, fields: dict[str, Any]) -> dict[str, Any]:
        row = self.mapping.row(fields, {})
        return row | {OP.name: fields[OP.name]} if OP.name in fields else row

    def check(self) -> list[str]:
        return [f"{len(self._matches()):,} files match {self._pattern}"]

    def sample(self, records: Records) -> Piece | None:
        for path in self._matches():
            try:
                stamp = Stamp.of(path)
            except FileNotFoundError:
                continue
            return first_piece(FileReader(self, path, stamp))
        return None

    def lag(self, records: Records) -> dict[str, Lag]:
        unread = {(path, stamp) for path, stamp, is_done in self._files(records) if not is_done}
        # Counted as offsets are, so that files that were read are behind the mark.
        self._file_count += len(unread - self._unread)
        self._unread = unread
        mark = self._file_count - len(unread)
        return {self._context.settings.name: Lag("files", mark, self._file_count)}

    def replayed(self, raw: str, metadata: Mapping[str, Any]) -> FileChunk:
        fields = load_json(raw.encode())
        if not isinstance(fields, dict):
            raise ValueError("is not a JSON object")
        return self.mapping.chunk([self._fit(fields)], [1], {})

    def setup(self) -> str:
        return ""


class FileReader:
    """A reader of one file. Its marks count records; the last one says that it is done."""

    can_seek = True
    at_end = False

    def __init__(
        self, connector: FolderConnector, path: Path, stamp: Stamp, is_done: bool = False
    ) -> None:
        self._path = path
        self._stamp = stamp
        # Another copy of the source may have read it to its end.
        self._chunks = connector.chunks(path) if not is_done else iter(())
        self._schema = connector._context.stream.schema

    def poll(self, seconds: float) -> Piece | None:
        try:
            chunk = next(self._chunks, None)
            if chunk is None:
                self._check()
        except FileNotFoundError:
            raise PlaceLost(f"{text_of(self._path)} is not there any more") from None
        except OSError as error:
            raise BadInput(f"{text_of(self._path)} can't be read: {error.strerror}") from None
        if chunk is not None:
            return Piece.of(chunk, where=f"{text_of(self._path.name)}, ")
        mark = self._stamp.mark(self._path)
        return Piece(self._schema.empty_table(), mark=mark, is_last=True)

    def _check(self) -> None:
        if Stamp.of(self._path) != self._stamp:
            raise PlaceLost(
                f"{text_of(self._path.name)} changed while it was read; let programs write under "
                "another name and rename the file when it is whole"
            )

    def acknowledge(self, mark: Mark) -> None:
        """The file is finished by its connector."""

    def interrupt(self) -> None:
        """A poll does not wait."""

    def close(self) -> None:
        """The file is open only while it is read."""


def file_digest(path: Path) -> str:
    """Return the digest of a file's path, size and content."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(f"{path}\n{path.stat().st_size}\n".encode("utf-8", "surrogateescape"))
    with path.open("rb") as file:
        while data := file.read(_HASH_BYTES):
            digest.update(data)
    return digest.hexdigest()


def text_of(path: Path | str) -> str:
    """Return a path as a text. Bytes that are no UTF-8 are written as `\\xff`."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def move_file(path: Path, target: Path) -> None:
    """Move a file, also to another device; the target has all of it or is not there."""
    try:
        os.replace(path, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        part = target.with_name(f".{target.name}.part")
        shutil.copy2(path, part)
        os.replace(part, target)
        path.unlink()


def _free(path: Path) -> Path:
    """Return the path, or one with a number if there is such a file already."""
    number = 1
    free = path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.stem}-{number}{path.suffix}")
    return free
