"""Progress bars for files that are read or copied, if standard error is a terminal."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from psoup.cli.output import counted
from psoup.escaping import escaped


class FileProgress:
    """Shows how much of the file has been read, and how many rows are acknowledged."""

    def __init__(self, verb: str, file: Path) -> None:
        console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %  {task.fields[rows]}"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        size = max(1, file.stat().st_size)
        self._task = self._progress.add_task(escaped(f"{verb} {file.name}"), total=size, rows="")

    def at(self, position: int) -> None:
        """Show that the file has been read up to this byte."""
        self._progress.update(self._task, completed=position)

    def rows(self, count: int) -> None:
        """Show how many rows are acknowledged."""
        self._progress.update(self._task, rows=counted(count, "row"))

    def __enter__(self) -> FileProgress:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()


class CopyProgress:
    """Shows how many bytes of many files are copied."""

    def __init__(self, verb: str) -> None:
        console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task(verb, total=None)

    def begin(self, total: int) -> None:
        """Take the number of bytes that are known so far."""
        self._progress.update(self._task, total=total)

    def advance(self, size: int) -> None:
        """Take the size of a file that is done."""
        self._progress.update(self._task, advance=size)

    def __enter__(self) -> CopyProgress:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()
