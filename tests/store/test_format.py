"""A store of another format than this program's is refused, and nothing in it is changed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from psoup.cli import cli
from psoup.store import Store, UnsupportedFormat
from psoup.store.delta.checksums import sealed
from psoup.store.layout import FORMAT


def set_format(root: Path, number: int) -> None:
    """Rewrite the first commit of a store's log as a program of another format would have it."""
    commit = root / "log" / "_delta_log" / f"{0:020d}.json"
    lines = [json.loads(line) for line in commit.read_text().splitlines()]
    for line in lines:
        if "metaData" in line:
            identity = json.loads(line["metaData"]["description"]) | {"psoup": number}
            line["metaData"]["description"] = json.dumps(identity)
    lines[0]["commitInfo"]["psoupHash"] = "0" * 16
    content = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    commit.write_bytes(sealed(content.encode()))


@pytest.mark.parametrize(
    ("number", "advice"), [(5, "never released.*make a new store"), (FORMAT + 1, "upgrade psoup")]
)
def test_a_store_of_another_format_is_refused(number: int, advice: str, tmp_path: Path) -> None:
    root = tmp_path / "store"
    Store.open(root, create=True)
    set_format(root, FORMAT)
    Store.open(root)
    set_format(root, number)
    (root / "audit" / "_delta_log" / f"{0:020d}.json").unlink()
    before = sorted(path.name for path in root.rglob("*"))
    with pytest.raises(UnsupportedFormat, match=f"format {number}.*{advice}"):
        Store.open(root)
    done = _check(root)
    assert done.exit_code == 1 and f"has format {number}; this version" in done.output
    assert re.search(advice, " ".join(done.output.split()))
    assert sorted(path.name for path in root.rglob("*")) == before


def test_a_store_of_this_format_needs_no_upgrade(tmp_path: Path) -> None:
    root = tmp_path / "store"
    Store.open(root, create=True)
    done = _check(root)
    assert done.exit_code == 0 and f"has format {FORMAT}" in done.output
    assert CliRunner().invoke(cli, ["upgrade", str(root)]).exit_code == 2
    assert "is not a store" in _check(tmp_path).output


def _check(root: Path) -> Result:
    return CliRunner().invoke(cli, ["upgrade", "--check", str(root)])
