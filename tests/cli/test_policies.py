"""Row policies from the command line, over a server."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from psoup.cli import cli
from tests.support.server.process import ServerProcess

pytestmark = pytest.mark.process

MINE = "CREATE POLICY mine ON orders USING (region = claim('region'))"


def test_a_policy_lives_and_dies(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "store", "--durability", "none")

    def run(*arguments: str, code: int = 0) -> Result:
        result = CliRunner().invoke(cli, ["--target", server.address, *arguments])
        assert result.exit_code == code, result.output
        return result

    try:
        run("stream", "create", "CREATE STREAM orders (id BIGINT, region TEXT) RETAIN 1 DAY")
        assert "no policies" in run("policy", "list").stdout
        assert "orders: 1 policy" in run("policy", "create", MINE).stderr
        assert MINE in run("policy", "list").stdout
        assert MINE in run("stream", "show", "orders").stdout
        wrong = MINE.replace("region =", "regio =")
        assert "did you mean region?" in run("policy", "create", wrong, code=1).stderr
        second = run("policy", "create", "DROP STREAM orders", code=2).stderr
        assert "write CREATE POLICY" in second and MINE in run("policy", "list").stdout
        run("policy", "drop", "mine", "orders", "--yes")
        assert "no policy" in run("policy", "drop", "mine", "orders", "-y", code=1).stderr
    finally:
        server.stop()
