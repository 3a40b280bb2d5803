"""A test authority: certificates of its own, and an issuer of JWTs, for tests and benchmarks."""

from __future__ import annotations

import ipaddress
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = timedelta(days=1)


@dataclass(frozen=True)
class Pair:
    """The files of a certificate and its key."""

    cert: Path
    key: Path


class Authority:
    """A certificate authority in a folder; `ca` is its certificate."""

    def __init__(self, folder: Path, name: str = "test authority") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._name = _subject(CN=name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        built = _builder(self._name, self._name, self._key.public_key(), DAY)
        built = built.add_extension(x509.BasicConstraints(True, 0), critical=True)
        self.ca = folder / "ca.pem"
        self.ca.write_bytes(_pem(built.sign(self._key, hashes.SHA256())))

    def server(self, name: str = "server", validity: timedelta = DAY) -> Pair:
        """Return a certificate for localhost."""
        names: list[x509.GeneralName] = [
            x509.DNSName("localhost"),
            x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
        ]
        usage = ExtendedKeyUsageOID.SERVER_AUTH
        return self._issue(name, _subject(CN="localhost"), usage, names, validity)

    def client(
        self, owner: str, tenant: str = "", validity: timedelta = DAY, name: str = ""
    ) -> Pair:
        """Return a certificate for a caller; without a tenant there is no O in it."""
        subject = _subject(CN=owner, **({"O": tenant} if tenant else {}))
        usage = ExtendedKeyUsageOID.CLIENT_AUTH
        return self._issue(name or owner, subject, usage, [], validity)

    def _issue(
        self,
        name: str,
        subject: x509.Name,
        usage: x509.ObjectIdentifier,
        names: list[x509.GeneralName],
        validity: timedelta,
    ) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        built = _builder(subject, self._name, key.public_key(), validity)
        built = built.add_extension(x509.BasicConstraints(False, None), critical=True)
        built = built.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        if names:
            built = built.add_extension(x509.SubjectAlternativeName(names), critical=False)
        pair = Pair(self.folder / f"{name}.pem", self.folder / f"{name}.key")
        pair.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        pair.cert.write_bytes(_pem(built.sign(self._key, hashes.SHA256())))
        return pair


def _builder(
    subject: x509.Name, issuer: x509.Name, key: Any, validity: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return x509.CertificateBuilder(
        issuer, subject, key, x509.random_serial_number(), now - DAY, now + validity
    )


def _subject(**parts: str) -> x509.Name:
    oids = {"CN": NameOID.COMMON_NAME, "O": NameOID.ORGANIZATION_NAME}
    return x509.Name([x509.NameAttribute(oids[part], text) for part, text in parts.items()])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.PEM)


# ---- JWTs

ISSUER, AUDIENCE = "https://issuer.test", "psoup"
_MAKE: Mapping[str, Any] = {
    "RS256": lambda: rsa.generate_private_key(65537, 2048),
    "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate,
}


@dataclass
class Issuer:
    """An issuer with a key of each algorithm, whose `kid` is the algorithm's name."""

    keys: dict[str, Any] = field(
        default_factory=lambda: {name: make() for name, make in _MAKE.items()}
    )

    def jwks(self, *algorithms: str) -> bytes:
        """Return the public keys, or only some of them."""
        names = algorithms or tuple(self.keys)
        return json.dumps({"keys": [self.jwk(name) for name in names]}).encode()

    def jwk(self, algorithm: str) -> dict[str, Any]:
        public = jwt.get_algorithm_by_name(algorithm).to_jwk(
            self.keys[algorithm].public_key(), as_dict=True
        )
        return {**public, "kid": algorithm, "use": "sig", "alg": algorithm}

    def token(
        self,
        algorithm: str = "ES256",
        *,
        seconds: float = 3600,
        headers: Mapping[str, Any] | None = None,
        **claims: Any,
    ) -> str:
        """Return a JWT of bob of acme, but for what other claims say; None leaves one out."""
        usual = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "exp": time.time() + seconds,
            "tenant": "acme",
            "sub": "bob",
        }
        body = {name: value for name, value in {**usual, **claims}.items() if value is not None}
        return jwt.encode(
            body, self.keys[algorithm], algorithm, {"kid": algorithm, **(headers or {})}
        )
