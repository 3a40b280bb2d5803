"""Views from the command line, over a server."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from psoup.cli import cli
from tests.support.server.process import ServerProcess

pytestmark = pytest.mark.process


def test_a_view_lives_and_dies(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "store", "--durability", "none")

    def run(*arguments: str, code: int = 0) -> Result:
        result = CliRunner().invoke(cli, ["--target", server.address, *arguments])
        assert result.exit_code == code, result.output
        return result

    try:
        run("stream", "create", "CREATE STREAM trades (symbol TEXT, price DOUBLE) RETAIN 1 DAY")
        assert "no views yet" in run("view", "list").stderr
        (tmp_path / "dear.sql").write_text(
            "CREATE VIEW dear AS SELECT symbol FROM trades WHERE price > 100"
        )
        created = run("view", "create", "--file", str(tmp_path / "dear.sql"))
        assert "view dear: 1 column" in created.stderr
        created = run("stream", "create", "CREATE STREAM dearest AS SELECT symbol FROM dear")
        assert "view dearest: 1 column" in created.stderr
        listed = run("view", "list").stdout
        assert "dear, trades" in listed and "dearest" in listed
        shown = run("view", "show", "dearest").stdout
        assert "CREATE VIEW dearest AS SELECT symbol FROM dear" in shown and "TEXT" in shown
        assert "no view trades" in run("view", "show", "trades", code=1).stderr
        run("register", "--key", "mine", "SELECT symbol FROM dearest")
        assert re.search(r"views\W+dearest, dear", run("explain", "mine").stdout)
        assert "named by dearest" in run("view", "drop", "dear", "--yes", code=1).stderr
        run("view", "drop", "dear", "--cascade", "--yes")
        assert "no views yet" in run("view", "list").stderr
        assert "dropped" in run("invoke", "mine", code=1).stderr
        assert "no functions yet" in run("function", "list").stderr
        created = run("function", "create", "CREATE FUNCTION euro(x DOUBLE) AS x * 0.89")
        assert "function euro(x DOUBLE): DOUBLE" in created.stderr
        run("stream", "create", "CREATE FUNCTION twice(x DOUBLE) AS euro(x) * 2")
        assert re.search(r"twice\(x DOUBLE\)\W+DOUBLE\W+euro", run("function", "list").stdout)
        assert "AS euro(x) * 2" in run("function", "show", "twice").stdout
        assert "no function dear" in run("function", "show", "dear", code=1).stderr
        assert "named by twice" in run("function", "drop", "euro", "--yes", code=1).stderr
        dropped = run("function", "drop", "euro", "--cascade", "--yes")
        assert "views and functions: twice" in dropped.stderr
        run("view", "create", "CREATE VIEW dear AS SELECT symbol FROM trades")
        run("stream", "drop", "trades", "--cascade", "--yes")
        assert "no views yet" in run("view", "list").stderr
    finally:
        server.stop()
