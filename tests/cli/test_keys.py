"""psoup key, and the credentials of every command, over a running server."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from psoup.cli import cli
from tests.support.authority import Authority
from tests.support.server.process import ROOT, ServerProcess


def run(*arguments: object, code: int = 0, env: Mapping[str, str] | None = None) -> Result:
    result = CliRunner(env=env).invoke(cli, [str(one) for one in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


def test_a_key_in_a_folder(tmp_path: Path) -> None:
    store, file = tmp_path / "store", tmp_path / "root.key"
    created = run("key", "create", "root", "--role", "operator", "--store", store, "--to", file)
    assert created.stdout == "" and "until it is revoked" in created.stderr
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    secret = file.read_text().strip()
    assert secret.startswith("psk_") and secret not in created.output
    run("--tenant", "acme", "key", "create", "ann", "--store", store, "--expires", "1d")
    (root,) = map(json.loads, run("key", "list", "--store", store, "--json").stdout.splitlines())
    assert (root["owner"], root["roles"], root["expires"]) == ("root", ["operator"], None)
    assert "digest" not in root and secret not in json.dumps(root)
    assert "ann" in run("--tenant", "acme", "key", "list", "--store", store).stdout
    run("--tenant", "acme", "key", "revoke", root["id"], "--store", store, code=1)
    run("key", "revoke", root["id"], "--store", store)
    assert "no access keys yet" in run("key", "list", "--store", store).output


def test_a_key_is_not_made_where_its_file_can_not_be(tmp_path: Path) -> None:
    store, file = tmp_path / "store", tmp_path / "there"
    file.write_text("mine")
    messages = run("key", "create", "x", "--store", store, "--to", file, code=2).stderr
    assert "File exists" in messages and file.read_text() == "mine" and not store.exists()
    run("key", "create", "x", "--claims", "{", "--store", store, code=2)
    run("key", "create", "x", "--claims", "[]", "--store", store, code=2)
    absent = tmp_path / "absent"
    run("key", "create", "x", "--claims", '{"a": []}', "--store", store, "--to", absent, code=1)
    assert not absent.exists()
    run("key", "list", "--store", tmp_path / "none", code=1)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, ServerProcess]]:
    """A server with TLS that asks for keys, its operator's key, and its authority."""
    folder = tmp_path_factory.mktemp("cli")
    run(
        "key",
        "create",
        "main",
        "--role",
        "operator",
        "--store",
        folder / "store",
        "--to",
        folder / "root.key",
    )
    pair = Authority(folder / "pki").server()
    files = ("--tls-cert", str(pair.cert), "--tls-key", str(pair.key))
    server = ServerProcess(folder / "store", *files, "--auth", "keys", "--durability", "none")
    yield folder, server
    server.stop()


@pytest.mark.process
def test_commands_show_a_token(world: tuple[Path, ServerProcess]) -> None:
    folder, server = world
    target = ("--target", server.address, "--tls-ca", folder / "pki" / "ca.pem")
    root = ("--token-file", folder / "root.key")
    messages = run(*target, "status", code=1).stderr
    assert "asks who calls" in messages and "PSOUP_TOKEN" in messages
    assert "owner main of tenant main, by key" in run(*target, *root, "status").output
    run(*target, *root, "stream", "create", "CREATE STREAM s (a BIGINT)")
    run(*target, *root, "register", "--key", "k", "SELECT a FROM s")
    rows = folder / "rows.csv"
    rows.write_text("a\n5\n")
    run(*target, *root, "publish", "s", rows)
    token = (folder / "root.key").read_text().strip()
    assert "5" in run(*target, "ask", "SELECT a FROM s", env={"PSOUP_TOKEN": token}).stdout
    tokens = {"PSOUP_TARGET": server.address, "PSOUP_TOKEN_FILE": str(folder / "root.key")}
    tokens["PSOUP_TLS_CA"] = str(folder / "pki" / "ca.pem")
    assert "SELECT a FROM s" in run("list", env=tokens).output
    copy = folder / "copy.db"
    run("copy", "keep", copy, "mine", "SELECT a FROM s")
    run("copy", "sync", copy, env=tokens)
    assert "5" in run("copy", "rows", copy, "mine").stdout
    run("pull", "--sql", "SELECT a FROM s", "--to", folder / "out.csv", "--once", env=tokens)
    assert (folder / "out.csv").read_text().split() == ['"a"', "5"]


@pytest.mark.process
def test_keys_through_a_server(world: tuple[Path, ServerProcess]) -> None:
    folder, server = world
    target = ("--target", server.address, "--tls-ca", folder / "pki" / "ca.pem")
    root = ("--token-file", folder / "root.key")
    created = run(
        *target,
        *root,
        "--tenant",
        "acme",
        "key",
        "create",
        "ann",
        "--role",
        "administrator",
        "--claims",
        '{"region": "north"}',
        "--expires",
        "1h",
    )
    secret = created.stdout.strip()
    ann = {"PSOUP_TOKEN": secret}
    listed = run(*target, "key", "list", env=ann).stdout
    assert "ann" in listed and "north" in listed and secret not in listed
    run(*target, "key", "create", "eve", "--role", "operator", code=1, env=ann)
    run(*target, "key", "revoke", secret[4:20], env=ann)
    assert "revoked" in run(*target, "status", code=1, env=ann).stderr


def test_a_token_stands_in_no_option() -> None:
    """Every user of a machine can see the arguments of its processes."""
    names = {name for parameter in cli.params for name in parameter.opts}
    assert "--token-file" in names and "--token" not in names


def test_no_token_goes_elsewhere_in_plain_text() -> None:
    messages = run(
        "--target", "store.example", "status", code=2, env={"PSOUP_TOKEN": "psk_secret"}
    ).stderr
    assert (
        "unencrypted" in messages
        and "--plaintext-token" in messages
        and "psk_secret" not in messages
    )
    assert "belong together" in run("--tls-cert", "x", "status", code=2).stderr
    assert "ASCII" in run("status", code=2, env={"PSOUP_TOKEN": "two words"}).stderr


@pytest.mark.process
def test_serve_with_tls_and_keys(tmp_path: Path) -> None:
    run(
        "key",
        "create",
        "root",
        "--role",
        "operator",
        "--store",
        tmp_path / "store",
        "--to",
        tmp_path / "root.key",
    )
    pair = Authority(tmp_path / "pki").server()
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "psoup.cli",
            "serve",
            str(tmp_path / "store"),
            "--no-engine",
            "--listen",
            "0.0.0.0:0",
            "--tls-cert",
            str(pair.cert),
            "--tls-key",
            str(pair.key),
            "--auth",
            "keys",
        ],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "NO_COLOR": "1"},
    )
    assert process.stderr is not None
    messages: list[str] = []
    for line in process.stderr:
        messages.append(line)
        if "Ctrl-C stops it" in line:
            break
    process.terminate()
    messages += process.stderr.readlines()
    process.stderr.close()
    assert process.wait(30) == 0, messages
    assert any("identity: TLS; callers show keys" in line for line in messages), messages
    assert any("PSOUP_TLS_CA" in line for line in messages)


def test_serve_refuses_to_listen_openly(tmp_path: Path) -> None:
    ended = subprocess.run(
        [
            sys.executable,
            "-m",
            "psoup.cli",
            "serve",
            str(tmp_path / "s"),
            "--no-engine",
            "--listen",
            "0.0.0.0:0",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert ended.returncode == 1 and "no TLS and no authentication" in ended.stderr
