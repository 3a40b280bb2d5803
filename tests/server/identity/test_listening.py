"""Where a server listens: on its own machine, or with TLS and callers who are known."""

from __future__ import annotations

from pathlib import Path

import pytest

from psoup.addresses import is_loopback
from psoup.server.identity.settings import IdentitySettings, JwtSettings, TlsFiles
from psoup.server.main import main
from psoup.server.options import parse_arguments
from tests.support.authority import Authority
from tests.support.server.process import ServerProcess


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost", "LocalHost"]
)
def test_the_own_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "store.example", "", "127.0.0.1.x"])
def test_other_machines_reach_it(
    host: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not is_loopback(host)
    assert main(["--store", str(tmp_path / "s"), "--host", host]) == 1
    errors = capsys.readouterr().err
    assert "no TLS and no authentication" in errors and "--insecure" in errors
    assert not (tmp_path / "s").exists()


def test_what_is_missing(tmp_path: Path) -> None:
    tls, keys = TlsFiles(tmp_path, tmp_path), ("keys",)
    assert IdentitySettings(keys, tls).missing_for("0.0.0.0") == []
    assert IdentitySettings(keys).missing_for("0.0.0.0") == ["TLS"]
    assert IdentitySettings((), tls).missing_for("0.0.0.0") == ["authentication"]
    assert IdentitySettings(("none",), tls).missing_for("0.0.0.0") == ["authentication"]
    assert IdentitySettings(("none",)).missing_for("127.0.0.1") == []


@pytest.mark.process
def test_told_so_it_listens_and_says_so_loudly(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "store", "--host", "0.0.0.0", "--insecure")
    try:
        from psoup.v1 import psoup_pb2 as pb

        status = server.stub.Status(pb.StatusRequest())
        assert list(status.security.missing) == ["TLS", "authentication"]
        assert "INSECURE" in server.errors.read_text()
    finally:
        server.stop()


@pytest.mark.process
def test_with_tls_and_callers_who_are_known_it_listens(tmp_path: Path) -> None:
    pair = Authority(tmp_path / "pki").server()
    files = ("--tls-cert", str(pair.cert), "--tls-key", str(pair.key))
    server = ServerProcess(tmp_path / "store", "--host", "0.0.0.0", *files, "--auth", "keys")
    errors = server.errors.read_text()
    server.stop()
    assert "INSECURE" not in errors and "identity: TLS; callers show keys" in errors


WRONG = [
    (["--tls-cert", "x"], "belong together"),
    (["--tls-key", "x"], "belong together"),
    (["--tls-client-ca", "x"], "needs --tls-cert"),
    (["--auth", "certificates"], "needs --tls-client-ca"),
    (["--auth", "none", "--auth", "keys"], "can't be beside"),
    (["--auth", "jwt"], "needs --jwt-keys, --jwt-issuer, --jwt-audience"),
    (["--auth", "jwt", "--jwt-keys", "k", "--jwt-issuer", "i"], "needs --jwt-audience"),
    (["--jwt-keys", "k"], "need --auth jwt"),
    (
        ["--auth", "jwt", "--jwt-keys", "http://x/k", "--jwt-issuer", "i", "--jwt-audience", "a"],
        "https URL",
    ),
    (["--auth", "magic"], "invalid choice"),
]


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_options_that_make_no_sense(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse_arguments(["--store", "x", *options])
    assert message in capsys.readouterr().err


def test_options_become_settings() -> None:
    arguments = ["--auth", "jwt", "--auth", "keys", "--auth", "keys", "--jwt-keys", "https://x/k"]
    more = ["--jwt-issuer", "i", "--jwt-audience", "a", "--jwt-tenant", "org", "--jwt-skew", "5"]
    identity = parse_arguments(["--store", "x", *arguments, *more]).identity
    assert identity.auth == ("jwt", "keys") and identity.authenticates
    assert identity.jwt == JwtSettings("https://x/k", "i", "a", 5.0, "org")
    assert parse_arguments(["--store", "x"]).identity == IdentitySettings()


@pytest.mark.parametrize(
    "options",
    [
        ["--tls-cert", "none.pem", "--tls-key", "none.key"],
        ["--auth", "jwt", "--jwt-keys", "no", "--jwt-issuer", "i", "--jwt-audience", "a"],
    ],
)
def test_files_that_are_not_there(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--store", str(tmp_path / "s"), *options]) == 1
    errors = capsys.readouterr().err
    assert "can't start" in errors and "No such file" in errors
