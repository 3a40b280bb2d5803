"""The settings of who may connect, and as whom: TLS, the ways to authenticate, where to listen."""

from __future__ import annotations

import argparse
import ipaddress
from dataclasses import dataclass
from pathlib import Path

# A server that is told none of these asks for a key where the store has one.
KEYS, JWT, CERTIFICATES, NONE = "keys", "jwt", "certificates", "none"
MODES = (KEYS, JWT, CERTIFICATES, NONE)


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files, read again when they change. With `client_ca` clients need a certificate of it."""

    cert: Path
    key: Path
    client_ca: Path | None = None


@dataclass(frozen=True, slots=True)
class JwtSettings:
    """Settings that say where the keys of an issuer's JWTs are (a file, or an https URL), what a
    JWT must say, and which of its claims are the tenant, the owner and the roles. `skew` is in
    seconds."""

    keys: str
    issuer: str
    audience: str
    skew: float = 60.0
    tenant: str = "tenant"
    owner: str = "sub"
    roles: str = "roles"


@dataclass(frozen=True, slots=True)
class IdentitySettings:
    """`auth` are some of MODES; nothing for the default. `insecure` lets a server listen beyond the
    own machine without TLS or authentication."""

    auth: tuple[str, ...] = ()
    tls: TlsFiles | None = None
    jwt: JwtSettings | None = None
    insecure: bool = False

    @property
    def authenticates(self) -> bool:
        """Whether callers must show who they are, whatever is in the store."""
        return bool(self.auth) and NONE not in self.auth

    def check_host(self, host: str) -> None:
        """Raises ValueError for a host beyond the own machine where not everything is asked for
        that belongs there, unless it was allowed."""
        missing = self.missing_for(host)
        if missing and not self.insecure:
            raise ValueError(
                f"{host} can be reached from other machines, and this server has no "
                f"{' and no '.join(missing)}; give --tls-cert and --tls-key, and --auth, or listen "
                "on 127.0.0.1. --insecure listens all the same, and lets anyone read and write"
            )

    def missing_for(self, host: str) -> list[str]:
        """Names what a server at a host should have, and has not."""
        if is_loopback(host):
            return []
        has = {"TLS": self.tls is not None, "authentication": self.authenticates}
        return [name for name, is_there in has.items() if not is_there]


def is_loopback(host: str) -> bool:
    """Tells whether only the own machine reaches a host."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


# ---- the command line


def add_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("identity (docs/reference/security.md)")
    group.add_argument("--tls-cert", type=Path, help="the server's certificate chain, PEM")
    group.add_argument("--tls-key", type=Path, help="the certificate's private key, PEM")
    group.add_argument(
        "--tls-client-ca", type=Path, help="clients need a certificate of these authorities, PEM"
    )
    group.add_argument(
        "--auth",
        action="append",
        choices=MODES,
        help="how callers show who they are; may be repeated. Left out: keys where the store has "
        "any, else nobody is asked",
    )
    group.add_argument("--jwt-keys", help="the issuer's JWKS: a file, or an https URL")
    group.add_argument("--jwt-issuer", help="the `iss` a JWT must have")
    group.add_argument("--jwt-audience", help="the `aud` a JWT must have")
    usual = JwtSettings("", "", "")
    group.add_argument(
        "--jwt-skew", type=float, default=usual.skew, help="seconds clocks may differ"
    )
    group.add_argument("--jwt-tenant", default=usual.tenant, help="the claim with the tenant")
    group.add_argument("--jwt-owner", default=usual.owner, help="the claim with the owner")
    group.add_argument("--jwt-roles", default=usual.roles, help="the claim with the roles")
    group.add_argument(
        "--insecure",
        action="store_true",
        help="listen beyond this machine without TLS or authentication",
    )


def read_options(parser: argparse.ArgumentParser, given: argparse.Namespace) -> IdentitySettings:
    """Reads what `add_options` has added; ends the process where that makes no sense."""
    auth = tuple(dict.fromkeys(given.auth or ()))
    if NONE in auth and len(auth) > 1:
        parser.error("--auth none can't be beside another --auth")
    if (given.tls_cert is None) != (given.tls_key is None):
        parser.error("--tls-cert and --tls-key belong together")
    if given.tls_client_ca is not None and given.tls_cert is None:
        parser.error("--tls-client-ca needs --tls-cert and --tls-key")
    if CERTIFICATES in auth and given.tls_client_ca is None:
        parser.error("--auth certificates needs --tls-client-ca")
    tls = None
    if given.tls_cert is not None:
        tls = TlsFiles(given.tls_cert, given.tls_key, given.tls_client_ca)
    return IdentitySettings(auth, tls, _jwt(parser, given, JWT in auth), given.insecure)


def _jwt(
    parser: argparse.ArgumentParser, given: argparse.Namespace, wanted: bool
) -> JwtSettings | None:
    needed = {
        "--jwt-keys": given.jwt_keys,
        "--jwt-issuer": given.jwt_issuer,
        "--jwt-audience": given.jwt_audience,
    }
    missing = [flag for flag, value in needed.items() if not value]
    if not wanted:
        if len(missing) < len(needed):
            parser.error("--jwt-keys, --jwt-issuer and --jwt-audience need --auth jwt")
        return None
    if missing:
        parser.error(f"--auth jwt needs {', '.join(missing)}")
    if given.jwt_keys.startswith("http://") and not _is_local(given.jwt_keys):
        parser.error("--jwt-keys must be a file or an https URL: whoever answers decides who calls")
    return JwtSettings(
        given.jwt_keys,
        given.jwt_issuer,
        given.jwt_audience,
        given.jwt_skew,
        given.jwt_tenant,
        given.jwt_owner,
        given.jwt_roles,
    )


def _is_local(url: str) -> bool:
    from urllib.parse import urlsplit

    return is_loopback(urlsplit(url).hostname or "")
