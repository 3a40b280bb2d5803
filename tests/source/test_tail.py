"""Files that grow, are rotated, cut, and followed again from a mark."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from psoup.source.connectors import tail
from psoup.source.connectors.tail import TailReader
from psoup.source.errors import BadInput, PlaceLost
from psoup.source.feeding.piece import Mark
from psoup.source.readers import Options
from tests.source.test_records import STREAM

Open = Callable[..., TailReader]


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tail, "_GRACE_SECONDS", 0.0)
    monkeypatch.setattr(tail, "_LOOK_SECONDS", 0.001)
    return tmp_path / "log.csv"


@pytest.fixture
def open_tail() -> Iterator[Open]:
    """Opens readers that are closed at the end."""
    readers = list[TailReader]()

    def open_reader(path: Path, mark: Mark | None = None) -> TailReader:
        readers.append(TailReader(path, "csv", STREAM, Options(), mark or {}))
        return readers[-1]

    yield open_reader
    for reader in readers:
        reader.close()


def values(reader: TailReader) -> tuple[list[int], Mark]:
    """Return the column `a` of what can be read now, and the mark after it."""
    numbers, mark = list[int](), dict[str, Any]()
    while (piece := reader.poll(0.03)) is not None:
        assert piece.mark is not None
        numbers += piece.table.column("a").to_pylist()
        mark = dict(piece.mark)
    return numbers, mark


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_lines_are_read_when_they_are_whole(open_tail: Open, path: Path) -> None:
    reader = open_tail(path)
    assert reader.poll(0.0) is None
    append(path, "a,b\n1,x\n2,")
    assert values(reader)[0] == [1]
    append(path, "y\n3")
    assert values(reader)[0] == [2]


def test_a_mark_is_gone_on_from(open_tail: Open, path: Path) -> None:
    append(path, "a,b\n1,x\n2,y\n")
    numbers, mark = values(open_tail(path))
    assert numbers == [1, 2]
    append(path, "3,z\n")
    assert values(open_tail(path, mark))[0] == [3]


def test_rotation_takes_the_rest_of_the_old_file_first(open_tail: Open, path: Path) -> None:
    append(path, "a,b\n1,x\n")
    reader = open_tail(path)
    numbers, mark = values(reader)
    append(path, "2,y\n3,z")
    path.rename(path.with_name("log.csv.1"))
    append(path, "b,a\nx,4\n")
    assert numbers + values(reader)[0] == [1, 2, 3, 4]
    # A process that was away while the file was rotated finds it under its new name.
    assert values(open_tail(path, mark))[0] == [2, 3, 4]


def test_a_file_that_was_rotated_twice_is_not_passed_over(open_tail: Open, path: Path) -> None:
    append(path, "a,b\n1,x\n")
    _, mark = values(open_tail(path))
    for number in (1, 2, 3):
        path.rename(path.with_name(f"log.csv.{number}"))
        append(path, f"a,b\n{number + 1},x\n")
        os.utime(path, ns=(number, time.time_ns() + number))
    assert values(open_tail(path, mark))[0] == [2, 3, 4]


def test_a_file_that_is_gone_is_said_to_be_lost(open_tail: Open, path: Path) -> None:
    append(path, "a,b\n1,x\n")
    _, mark = values(open_tail(path))
    path.unlink()
    append(path, "a,b\n5,x\n6,y\n")
    # The inode may be the same: the first bytes are not.
    path.write_text("b,a\n5,5\n6,6\n")
    with pytest.raises(PlaceLost, match="is lost"):
        open_tail(path, mark)


def test_a_file_that_is_cut_is_read_from_its_beginning(open_tail: Open, path: Path) -> None:
    append(path, "a,b\n1,x\n2,y\n")
    reader = open_tail(path)
    values(reader)
    path.write_text("a,b\n7,z\n")
    assert values(reader)[0] == [7]


def test_wide_encodings_are_refused(path: Path) -> None:
    with pytest.raises(BadInput, match="convert the file first"):
        TailReader(path, "csv", STREAM, Options(encoding="utf-16"), {})
