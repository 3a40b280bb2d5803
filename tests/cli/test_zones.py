"""psoup zone: lists the time zones of a store, and renews their rules."""

from __future__ import annotations

import json

from click.testing import CliRunner

from client_sdk import Client
from psoup.cli import cli
from tests.support.server.process import ServerProcess


def run(server: ServerProcess, *arguments: str) -> str:
    outcome = CliRunner().invoke(cli, ["--target", server.address, "zone", *arguments])
    assert outcome.exit_code == 0, outcome.output
    return outcome.output


def test_zones_are_listed_and_renewed(shared_server: ServerProcess, tenant: str) -> None:
    with Client(shared_server.address, tenant=tenant) as client:
        client.define("CREATE STREAM calls (a BIGINT)")
        client.register("SELECT a FROM calls DURING TODAY AT TIME ZONE 'Africa/Cairo'")
    assert "Africa/Cairo" in run(shared_server, "list")
    renewed = json.loads(run(shared_server, "renew", "Africa/Cairo", "--json"))
    zones = {zone["name"]: zone for zone in renewed["zones"]}
    assert zones["Africa/Cairo"] == {"name": "Africa/Cairo", "version": 1, "outdated": False}
    assert renewed["registration_count"] == 0
    outcome = CliRunner().invoke(
        cli, ["--target", shared_server.address, "zone", "renew", "Mars/Base"]
    )
    assert outcome.exit_code and "no rules of the time zone Mars/Base" in outcome.output
