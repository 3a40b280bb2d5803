"""TLS: who can connect, which certificate is shown, and that a new one is, without a restart."""

from __future__ import annotations

import logging
import shutil
import socket
import ssl
import warnings
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from client_sdk import Client, ConnectionFailed, Credentials
from psoup.server.identity.certificates import ServerCertificates
from psoup.server.identity.settings import TlsFiles
from tests.server.identity.conftest import NO_RETRY, World
from tests.support.authority import Authority, Pair
from tests.support.server.process import ServerProcess


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "pki")


def _serial(address: str, ca: Path) -> int:
    """The serial number of the certificate that a server shows."""
    context = ssl.create_default_context(cafile=str(ca))
    context.set_alpn_protocols(["h2"])
    host, _, port = address.rpartition(":")
    with (
        socket.create_connection((host, int(port)), timeout=120) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as line,
    ):
        certificate = line.getpeercert()
    assert certificate is not None
    return int(str(certificate["serialNumber"]), 16)


@pytest.fixture
def server(tmp_path: Path, authority: Authority) -> Iterator[ServerProcess]:
    pair = authority.server()
    files = ("--tls-cert", str(pair.cert), "--tls-key", str(pair.key))
    server = ServerProcess(tmp_path / "store", *files, "--durability", "none")
    yield server
    server.stop()


def _status(server: ServerProcess, credentials: Credentials | None) -> None:
    with Client(server.address, credentials=credentials, retry=NO_RETRY, timeout=120) as client:
        security = client.status().security
    assert security is not None and security.tls


@pytest.mark.process
def test_a_new_certificate_is_shown_without_a_restart(
    server: ServerProcess, authority: Authority, tmp_path: Path
) -> None:
    trusted = Credentials(ca=authority.ca)
    with Client(server.address, credentials=trusted) as early:
        early.status()
        before = _serial(server.address, authority.ca)
        authority.server()
        after = _serial(server.address, authority.ca)
        assert before != after
        early.status()
    _status(server, trusted)
    (tmp_path / "pki" / "server.pem").write_text("half a certif")
    assert _serial(server.address, authority.ca) == after
    assert "stays as it was" in server.errors.read_text()
    new_authority = Authority(tmp_path / "other")
    pair = new_authority.server()
    for name, source in (("server.pem", pair.cert), ("server.key", pair.key)):
        shutil.copy(source, tmp_path / "pki" / name)
    with pytest.raises(ConnectionFailed):
        _status(server, trusted)
    _status(server, Credentials(ca=new_authority.ca))


@pytest.mark.process
def test_a_store_that_is_not_trusted_gets_no_token(server: ServerProcess, tmp_path: Path) -> None:
    stranger = Authority(tmp_path / "stranger")
    for credentials in (
        Credentials("psk_secret", ca=stranger.ca),
        Credentials("psk_secret", tls=True),
        None,
    ):
        with pytest.raises(ConnectionFailed):
            _status(server, credentials)


@pytest.mark.process
def test_clients_without_a_certificate_of_the_authority(world: World, tmp_path: Path) -> None:
    stranger = Authority(tmp_path / "stranger").client("bob", "acme")
    late = world.authority.client("bob", "acme", timedelta(seconds=-1), name="late")
    for pair in (stranger, late):
        with pytest.raises(ConnectionFailed):
            _status(world.server, world.credentials(cert=pair.cert, key=pair.key))
    with pytest.raises(ConnectionFailed):
        _status(world.server, Credentials(world.operator, ca=world.authority.ca))


@pytest.mark.process
def test_old_versions_of_tls_are_refused(server: ServerProcess, authority: Authority) -> None:
    host, _, port = server.address.rpartition(":")
    accepted = {}
    for version in (ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context = ssl.create_default_context(cafile=str(authority.ca))
        context.set_alpn_protocols(["h2"])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            context.set_ciphers("ALL:@SECLEVEL=0")
            context.minimum_version = context.maximum_version = version
        try:
            with (
                socket.create_connection((host, int(port)), timeout=120) as plain,
                context.wrap_socket(plain, server_hostname="localhost"),
            ):
                accepted[version.name] = True
        except OSError:
            accepted[version.name] = False
    assert accepted == {"TLSv1_1": False, "TLSv1_2": True, "TLSv1_3": True}


def test_files_that_do_not_belong_together(authority: Authority, tmp_path: Path) -> None:
    first, second = authority.server("one"), authority.server("two")
    with pytest.raises(ValueError, match="is not the key of"):
        ServerCertificates(TlsFiles(first.cert, second.key))
    with pytest.raises(ValueError, match="is not what it should be"):
        ServerCertificates(TlsFiles(first.key, first.key))
    with pytest.raises(ValueError, match="is not what it should be"):
        ServerCertificates(TlsFiles(first.cert, first.key, first.key))
    with pytest.raises(FileNotFoundError):
        ServerCertificates(TlsFiles(tmp_path / "none.pem", first.key))


def test_files_are_read_only_when_they_change(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "psoup.server")
    pair: Pair = authority.server()
    certificates = ServerCertificates(TlsFiles(pair.cert, pair.key))
    assert certificates.renewed() is None
    key = pair.key.read_bytes()
    authority.server()
    fresh = pair.key.read_bytes()
    pair.key.write_bytes(key)
    assert certificates.renewed() is None, "the certificate is new, and its key is not there yet"
    pair.key.write_bytes(fresh)
    assert certificates.renewed() is not None
    assert certificates.renewed() is None
    assert key.decode().splitlines()[1] not in caplog.text


def test_an_unreadable_moment_is_looked_at_again(authority: Authority) -> None:
    """Where files are replaced one after the other, or are gone for a moment."""
    pair = authority.server()
    certificates = ServerCertificates(TlsFiles(pair.cert, pair.key))
    hidden = pair.cert.with_suffix(".old")
    pair.cert.rename(hidden)
    assert certificates.renewed() is None
    hidden.rename(pair.cert)
    authority.server()
    assert certificates.renewed() is not None
