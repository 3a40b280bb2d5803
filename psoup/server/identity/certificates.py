"""The certificates of a server, read again when their files change, and callers by certificate.

TLS verifies a caller's certificate before any call arrives. Its subject names the caller: O is the
tenant, CN the owner. It has no roles: what it may do are grants to that owner.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, TypeVar

import grpc
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from datastem.instants import SECOND
from psoup.access.principal import Principal
from psoup.errors import Unauthenticated
from psoup.server.identity.settings import TlsFiles
from psoup.server.status_codes import Context
from psoup.texts import is_name

log = logging.getLogger("psoup.server")

T = TypeVar("T")

_LABEL = "certificate "


# ---- the server's own


class ServerCertificates:
    """The certificate, its key and the authorities of clients, as their files were at the last
    handshake at which they belonged together."""

    def __init__(self, files: TlsFiles) -> None:
        """Raise ValueError or OSError if they can't be used."""
        self._files = files
        self._lock = threading.Lock()
        self._marks = self._look()
        self._configuration = self._read()

    def credentials(self) -> grpc.ServerCredentials:
        """Return the credentials for a port: TLS 1.2 and later, which is the least that gRPC
        speaks."""
        renewed: Any = self.renewed  # may give None, which the stubs leave out
        return grpc.dynamic_ssl_server_credentials(
            self._configuration, renewed, self._files.client_ca is not None
        )

    def renewed(self) -> grpc.ServerCertificateConfiguration | None:
        """Return the configuration if files have changed, else None. gRPC calls this before each
        handshake, in a thread of its own. Unusable files leave it as it was."""
        with self._lock:
            try:
                marks = self._look()
                if marks == self._marks:
                    return None
                # Also if the files turn out unusable: they are then reported once, not at each
                # handshake.
                self._marks = marks
                self._configuration = self._read()
            except (OSError, ValueError) as error:
                log.warning("the TLS certificate stays as it was: %s", error)
                return None
            log.info("the TLS certificate was read again from %s", self._files.cert)
            return self._configuration

    def check(self) -> None:
        """Warn if the files, as they are now, can't be used by the next handshake."""
        try:
            self._read()
        except (OSError, ValueError) as error:
            log.warning("the TLS certificate stays as it was: %s", error)

    def _look(self) -> list[tuple[int, int, int]]:
        paths = (self._files.cert, self._files.key, self._files.client_ca)
        stats = [os.stat(path) for path in paths if path is not None]
        return [(file.st_mtime_ns, file.st_size, file.st_ino) for file in stats]

    def _read(self) -> grpc.ServerCertificateConfiguration:
        files = self._files
        chain, key = files.cert.read_bytes(), files.key.read_bytes()
        _check_pair(chain, key, files)
        authorities = None if files.client_ca is None else files.client_ca.read_bytes()
        if authorities is not None:
            _load(x509.load_pem_x509_certificates, authorities, str(files.client_ca))
        return grpc.ssl_server_certificate_configuration([(key, chain)], authorities)


def certificate_end(files: TlsFiles) -> datetime:
    """Return when the certificate in these files ends. Raise ValueError or OSError if they can't be
    used."""
    return _check_pair(files.cert.read_bytes(), files.key.read_bytes(), files).not_valid_after_utc


def _check_pair(chain: bytes, key: bytes, files: TlsFiles) -> x509.Certificate:
    """Return the certificate. Raise ValueError if it and the key don't belong together."""
    first = _load(x509.load_pem_x509_certificates, chain, str(files.cert))[0]
    private = _load(lambda content: load_pem_private_key(content, None), key, str(files.key))
    if _spki(first.public_key()) != _spki(private.public_key()):
        raise ValueError(f"{files.key} is not the key of the certificate in {files.cert}")
    return first


def _spki(key: object) -> bytes:
    content: bytes = key.public_bytes(  # type: ignore[attr-defined]
        Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    )
    return content


def _load(read: Callable[[bytes], T], content: bytes, name: str) -> T:
    """Return what `read` makes of a file. Raise ValueError, which names the file and none of its
    content."""
    try:
        return read(content)
    except Exception:
        raise ValueError(f"{name} is not what it should be: PEM, and without a password") from None


# ---- callers


class CallerCertificates:
    """Callers by the certificates of their connections. `now` returns the present instant."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now

    def principal(self, context: Context) -> Principal | None:
        """Return the caller whose certificate the connection has; None without one. Raise
        Unauthenticated."""
        certificates = context.auth_context().get("x509_pem_cert")
        if not certificates:
            return None
        caller = _principal(bytes(next(iter(certificates))))
        self.check(caller)
        return caller

    def check(self, caller: Principal) -> None:
        """Raise Unauthenticated if the certificate of a caller has expired."""
        if caller.expires is not None and self._now() >= caller.expires:
            raise Unauthenticated(
                "the client's certificate has expired", hint="connect again with a new one"
            )

    @staticmethod
    def made(caller: Principal) -> bool:
        """Return whether a caller was identified by a certificate."""
        return caller.credential.startswith(_LABEL)


@lru_cache(4096)
def _principal(pem: bytes) -> Principal:
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        tenant = _only(certificate, NameOID.ORGANIZATION_NAME, "O", "the tenant")
        owner = _only(certificate, NameOID.COMMON_NAME, "CN", "the owner")
        ends = certificate.not_valid_after_utc - datetime(1970, 1, 1, tzinfo=UTC)
    except (ValueError, x509.InvalidVersion):
        raise Unauthenticated(
            "the client's certificate can't be read",
            hint="use another certificate, or show a key or a JWT too",
        ) from None
    # Serial numbers are an authority's own, and there may be several authorities.
    credential = f"{_LABEL}{hashlib.sha256(pem).hexdigest()[:32]}"
    return Principal(
        tenant, owner, credential=credential, expires=int(ends.total_seconds()) * SECOND
    )


def _only(certificate: x509.Certificate, oid: x509.ObjectIdentifier, short: str, what: str) -> str:
    match [attribute.value for attribute in certificate.subject.get_attributes_for_oid(oid)]:
        case [str() as value] if is_name(value):
            return value
    raise Unauthenticated(
        f"the subject of the client's certificate must have one {short}, {what}",
        hint="use another certificate, or show a key or a JWT too",
    )
