"""A folder with back-ups, one folder for each generation.

`<number>-<instant>/store` has the files of a store, and `<number>-<instant>/manifest.jsonl` their
sizes and checksums. A file that two generations have is linked. `unfinished/` holds what an
interrupted back-up has copied; the next back-up goes on there.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path

from psoup.store.backup.copying import FileMark
from psoup.store.backup.generations import (
    MANIFEST,
    Generation,
    Header,
    check_store,
    is_name,
    next_name,
    number_of,
    read_header,
    write_manifest,
)
from psoup.store.delta.durable import (
    copy_file,
    crc_of,
    make_folder,
    remove,
    remove_folder,
    replace_file,
    sync_folder,
)
from psoup.store.errors import BackupFailed

_LOCK = "backup.lock"
_UNFINISHED = "unfinished"


class FolderFiles:
    """The files below the folder `root`. `base` is an earlier copy with the marks of its files: a
    file that it has is linked."""

    # So that syncs overlap. More threads would take processor time from servers, and two are as
    # fast as a disk.
    threads = 2

    def __init__(self, root: Path, base: tuple[Path, Mapping[str, FileMark]] | None = None) -> None:
        self.root = root
        self._base = base

    def has(self, path: str, mark: FileMark, *, read: bool = False) -> bool:
        is_same = self.is_whole if read else self._has_size
        return is_same(path, mark) or (self._link(path, mark) and is_same(path, mark))

    def take(self, source: Path, path: str, mark: FileMark) -> None:
        _copy(source, self._place(path), mark)

    def put(self, path: str, content: bytes) -> None:
        replace_file(self._place(path), content, sync_name=False)

    def give(self, path: str, mark: FileMark, target: Path) -> None:
        _copy(self.root / path, target, mark)

    def is_whole(self, path: str, mark: FileMark) -> bool:
        try:
            return FileMark(*crc_of(self.root / path)) == mark
        except FileNotFoundError:
            return False

    @contextmanager
    def local(self, marks: Mapping[str, FileMark]) -> Iterator[Path]:
        yield self.root

    def sync_folders(self, marks: Mapping[str, FileMark]) -> None:
        """Make the names of files durable."""
        for folder in {parent for path in marks for parent in Path(path).parents}:
            sync_folder(self.root / folder)

    def _place(self, path: str) -> Path:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        return target

    def _has_size(self, path: str, mark: FileMark) -> bool:
        """Return True if a file, whose name is unique and which was synced before it had this name,
        exists."""
        return _has_size(self.root / path, mark)

    def _link(self, path: str, mark: FileMark) -> bool:
        """Link a file to that of the base; return False if the base does not have it."""
        if self._base is None:
            return False
        folder, marks = self._base
        if marks.get(path) != mark or not _has_size(folder / path, mark):
            return False
        target = self._place(path)
        target.unlink(missing_ok=True)
        try:
            os.link(folder / path, target)
        except OSError:
            # The file system has no links, or the file has too many.
            return False
        return True


def _copy(source: Path, target: Path, mark: FileMark) -> None:
    try:
        copied = FileMark(*copy_file(source, target))
    except FileNotFoundError as error:
        raise BackupFailed(f"{source} is gone") from error
    if copied != mark:
        target.unlink(missing_ok=True)
        raise BackupFailed(f"{source} is damaged: its checksum is wrong")


def _has_size(path: Path, mark: FileMark) -> bool:
    try:
        return path.stat().st_size == mark.size
    except FileNotFoundError:
        return False


class FolderTarget:
    """A target that this process has locked, for back-ups of one store."""

    def __init__(self, root: Path, store: str) -> None:
        self._root = root
        self.generations = _generations(root)
        check_store(self.generations, store, str(root))
        base = self.generations[-1] if self.generations else None
        linked = (root / base.name / "store", base.marks()) if base else None
        self._draft = FolderFiles(root / _UNFINISHED / "store", linked)

    def begin(self) -> FolderFiles:
        # The manifest of a back-up that was killed before it had its name.
        remove([self._root / _UNFINISHED / MANIFEST])
        make_folder(self._draft.root, levels=2)
        return self._draft

    def check(self) -> None:
        # The lock of a file lasts as long as this process.
        pass

    def settle(self, marks: Mapping[str, FileMark]) -> None:
        draft = self._draft.root
        for folder, _, names in os.walk(draft):
            paths = (Path(folder) / name for name in names)
            remove(path for path in paths if str(path.relative_to(draft)) not in marks)
        self._draft.sync_folders(marks)

    def finish(self, header: Header, marks: Mapping[str, FileMark]) -> Generation:
        folder = self._root / _UNFINISHED
        name = next_name([path.name for path in _named(self._root)], header.begun)
        sync_folder(folder)
        replace_file(folder / MANIFEST, write_manifest(header, marks).encode())
        os.rename(folder, self._root / name)
        sync_folder(self._root)
        return _generation(self._root / name, header)

    def drop_before(self, instant: int) -> int:
        old = [copy for copy in self.generations[:-1] if copy.header.begun < instant]
        for generation in old:
            remove([self._root / generation.name / MANIFEST])
        for path in _named(self._root):
            if not (path / MANIFEST).exists():
                remove_folder(path)
        return len(old)


def _named(root: Path) -> list[Path]:
    """Return the folders of generations, finished or not, oldest first."""
    paths = (path for path in root.iterdir() if is_name(path.name))
    return sorted(paths, key=lambda path: number_of(path.name))


def _generation(path: Path, header: Header) -> Generation:
    return Generation(
        path.name, str(path), header, FolderFiles(path / "store"), lambda: _manifest(path)
    )


def _manifest(path: Path) -> str:
    return (path / MANIFEST).read_text(errors="replace")


def _read_generation(path: Path) -> Generation | None:
    """Return the back-up in a folder; None if it has no manifest. Raise BackupFailed if the
    manifest is damaged or of another version."""
    if not (path / MANIFEST).exists():
        return None
    return _generation(path, read_header(_manifest(path), str(path)))


def _generations(root: Path) -> list[Generation]:
    return [copy for path in _named(root) if (copy := _read_generation(path)) is not None]


@contextmanager
def locked_folder(root: Path, store: str) -> Iterator[FolderTarget]:
    """Make or open a folder for back-ups of a store, and keep other back-ups out of it.

    Raise BackupFailed if another one is being made there, or the folder holds anything else.
    """
    make_folder(root, levels=1)
    strange = [path.name for path in root.iterdir() if not _is_ours(path.name)]
    if strange:
        raise BackupFailed(
            f"{root} holds {strange[0]}, which is no back-up; choose a new or empty folder"
        )
    with _lock(root, os.O_RDWR | os.O_CREAT, fcntl.LOCK_EX):
        yield FolderTarget(root, store)


@contextmanager
def read_folder(root: Path) -> Iterator[list[Generation]]:
    """Open a folder with back-ups, or that of one generation, and return its generations, oldest
    first. No back-up is made or removed there within the context."""
    if not root.is_dir():
        raise BackupFailed(f"{root} is not a folder with back-ups")
    single = _read_generation(root)
    folder = root if single is None else root.parent
    with _lock(folder, os.O_RDONLY, fcntl.LOCK_SH) if (folder / _LOCK).exists() else nullcontext():
        yield _generations(root) if single is None else [single]


@contextmanager
def _lock(root: Path, flags: int, kind: int) -> Iterator[None]:
    descriptor = os.open(root / _LOCK, flags, 0o666)
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise BackupFailed(f"{root} is in use by another back-up or restore") from None
    try:
        yield
    finally:
        os.close(descriptor)


def _is_ours(name: str) -> bool:
    return name in (_LOCK, _UNFINISHED) or is_name(name)
