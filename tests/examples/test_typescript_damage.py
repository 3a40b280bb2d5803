"""Whatever happens to the TypeScript client's file, the next sync finds it and mends it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.examples.conftest import Pair

pytestmark = [pytest.mark.long, pytest.mark.process]


@pytest.mark.parametrize(
    "select", ["SELECT a, t FROM m", "SELECT t, count(*) AS n FROM m GROUP BY t"]
)
def test_damage_is_found_and_mended(pair: Pair, select: str) -> None:
    pair.publish_numbers(select, 40)
    right = pair.sync().rows
    content = pair.lines()
    for name, damage in DAMAGES.items():
        lines = copy.deepcopy(content)
        damage(lines)
        pair.write(lines)
        if name not in UNSEEN:
            rows = pair.driver.run("rows", pair.path)
            assert rows[0] == "the copy is damaged; the next sync mends it", name
        assert pair.sync().rows == right, name
        assert "damaged" not in pair.driver.run("rows", pair.path)[0], name


def _flip_value(lines: list[list[Any]]) -> None:
    lines[5][-1] = "7" if lines[5][-1] != "7" else "8"


def _drop(lines: list[list[Any]]) -> None:
    del lines[6:9]


def _add(lines: list[list[Any]]) -> None:
    """With a checksum that is right for another row only."""
    lines.append([*lines[7][:1], "12345678901", *lines[7][2:]])


def _end(lines: list[list[Any]]) -> None:
    lines[5][3] = "1"


def _checksum(lines: list[list[Any]]) -> None:
    lines[4][5] = str(int(lines[4][5]) ^ 1 << 40)


def _id(lines: list[list[Any]]) -> None:
    lines[4][1] = "999999"


def _unreadable(lines: list[list[Any]]) -> None:
    lines[4] = ["", "not a row"]


def _head(lines: list[list[Any]]) -> None:
    lines[1][2]["end"]["rowCount"] = "41"


def _token(lines: list[list[Any]]) -> None:
    lines[1][1] = lines[1][1][::-1]


def _everything(lines: list[list[Any]]) -> None:
    for line in lines[2:]:
        line[5] = "1"


DAMAGES: dict[str, Callable[[list[list[Any]]], None]] = {
    "value": _flip_value,
    "dropped": _drop,
    "added": _add,
    "interval": _end,
    "checksum": _checksum,
    "id": _id,
    "line": _unreadable,
    "head": _head,
    "seal": _token,
    "all": _everything,
}
# Without its head there is no copy to show: the next sync brings the whole answer.
UNSEEN = {"head", "seal"}


def test_a_repair_that_is_cut_goes_on(pair: Pair) -> None:
    pair.publish_numbers("SELECT a, t FROM m")
    right = pair.sync().rows
    lines = pair.lines()
    pair.write([*lines[:100], *lines[1300:]])
    options = ("--budget", 20_000, "--calls", 1)
    calls = 1
    while pair.driver.run("sync", pair.path, *options)[0].startswith("there is more"):
        calls += 1
    assert 3 <= calls < 20
    assert pair.driver.rows_after("rows", pair.path).rows == right
