"""Grants, quotas and the audit from the command line, over a server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from client_sdk import Client
from psoup.cli import cli
from tests.support.server.process import ServerProcess

pytestmark = pytest.mark.process


def test_who_may_do_what_and_how_much(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "store", "--durability", "none")

    def run(*arguments: str, code: int = 0) -> Result:
        result = CliRunner().invoke(cli, ["--target", server.address, *arguments])
        assert result.exit_code == code, result.output
        return result

    try:
        assert "nothing was administered" in run("audit").stderr
        run("stream", "create", "CREATE STREAM trades (symbol TEXT) RETAIN 1 DAY")
        assert "no grants" in run("grant", "list").stderr
        run("grant", "make", "GRANT read, register ON trades TO ROLE field")
        granted = run("grant", "make", "/* by hand */ GRANT define ON trades TO ROLE field").stderr
        assert granted == "granted; psoup grant list shows all grants\n"
        revoked = run("grant", "make", "revoke define ON trades FROM ROLE field").stderr
        assert revoked.startswith("revoked; ")
        wrong = run("grant", "make", "CREATE STREAM other (a BIGINT)", code=2).stderr
        assert "write GRANT" in wrong and "other" not in run("stream", "list").stdout
        run("grant", "make", "GRANT publish ON ALL TO OWNER 'gate'")
        run("grant", "make", "REVOKE register ON trades FROM ROLE field")
        grants = json.loads(run("grant", "list", "--json").stdout)
        assert [(grant["object"], grant["role"], grant["owner"]) for grant in grants] == [
            ("", "", "gate"),
            ("trades", "field", ""),
        ]
        assert "did you mean read" in run("grant", "make", "GRANT raed ON trades", code=1).stderr
        assert "no quotas" in run("quota", "list").stderr
        for name in ("a1", "a2", "b"):
            with Client(server.address) as client:
                client.publisher(name).publish("trades", [{"symbol": "IBM"}])
        publishers = json.loads(run("publisher", "list", "a", "--json").stdout)
        assert [(entry["name"], entry["sequence"]) for entry in publishers] == [
            ("a1", 1),
            ("a2", 1),
        ]
        assert "give names" in run("publisher", "forget", code=2).stderr
        assert "forgot 0 publishers" in run("publisher", "forget", "--idle", "1h").stderr
        assert "no publisher 'c'" in run("publisher", "forget", "b", "c", code=1).stderr
        assert "forgot 2 publishers" in run("publisher", "forget", "b", "a1").stderr
        assert "forgot 1 publisher" in run("publisher", "forget", "--idle", "0s").stderr
        assert "no publishers" in run("publisher", "list").stderr
        run("quota", "set", "registrations=1", "watches=2")
        run("quota", "set", "--of", "alice", "watches=none", "registrations=1")
        assert "write NAME=NUMBER" in run("quota", "set", "watches", code=2).stderr
        run("register", "--key", "one", "SELECT * FROM trades")
        refused = run("register", "--key", "two", "SELECT * FROM trades", code=1).stderr
        assert "for registrations is 1, and 1 of it is used" in refused
        listed = run("quota", "list").stdout
        assert "alice" in listed and "watches" in listed
        assert "registrations of tenant" in run("status").stdout
        status = json.loads(run("audit", "-n", "3", "--json").stdout)
        assert [entry["action"] for entry in status] == [
            "set quota",
            "set quota",
            "forget publisher",
        ]
        run("stream", "create", "CREATE STREAM doomed (a BIGINT) RETAIN 1 DAY")
        run("policy", "create", "CREATE POLICY few ON doomed USING (a < 3)")
        run("view", "create", "CREATE VIEW few_more AS SELECT a FROM doomed")
        run("grant", "make", "GRANT read ON few_more TO ROLE field")
        run("quota", "set", "registrations=none")
        run("register", "--key", "lost", "SELECT a FROM few_more")
        dropped = run("stream", "drop", "doomed", "--cascade", "--yes").stderr.splitlines()
        assert dropped == [
            "dropped doomed",
            "views and functions: few_more",
            "row policies: few",
            "grants: read on few_more to role field",
            "queries that can no longer be answered: lost of main",
        ]
        run("--tenant", "acme", "stream", "create", "CREATE STREAM theirs (a BIGINT) RETAIN 1 DAY")
        assert "theirs" in run("audit", "--all-tenants").stdout
        assert "theirs" in run("--tenant", "acme", "audit").stdout
        entries = run("audit").stdout
        assert "trades" in entries and "theirs" not in entries
    finally:
        server.stop()
