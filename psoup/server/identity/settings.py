"""The settings of who may connect: TLS, the ways to authenticate, the host to listen on."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from psoup.addresses import is_loopback

# Without any of these a server asks for an access key if the store has one.
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
    """Settings of identity. `auth` are values of MODES, none for the default. `insecure` lets a
    server listen beyond its machine without TLS or authentication."""

    auth: tuple[str, ...] = ()
    tls: TlsFiles | None = None
    jwt: JwtSettings | None = None
    insecure: bool = False

    @property
    def authenticates(self) -> bool:
        """Whether callers must show who they are, whatever is in the store."""
        return bool(self.auth) and NONE not in self.auth

    def check_host(self, host: str) -> None:
        """Raise ValueError if other machines reach a host, and the server lacks what it needs for
        that, unless `insecure` allows it."""
        missing = self.missing_for(host)
        if missing and not self.insecure:
            raise ValueError(
                f"{host} can be reached from other machines, and this server has no "
                f"{' and no '.join(missing)}; give --tls-cert and --tls-key, and --auth, or listen "
                "on 127.0.0.1. --insecure listens all the same, and lets anyone read and write"
            )

    def missing_for(self, host: str) -> list[str]:
        """Return the names of what a server at a host needs, and lacks."""
        if is_loopback(host):
            return []
        has = {"TLS": self.tls is not None, "authentication": self.authenticates}
        return [name for name, is_there in has.items() if not is_there]


# ---- the command line


def add_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("identity (docs/reference/security.md)")
    group.add_argument(
        "--tls-cert",
        type=Path,
        metavar="FILE",
        help="the server's certificate chain, PEM; read again when it changes",
    )
    group.add_argument(
        "--tls-key", type=Path, metavar="FILE", help="the certificate's private key, PEM"
    )
    group.add_argument(
        "--tls-client-ca",
        type=Path,
        metavar="FILE",
        help="accept only clients with a certificate of these authorities, PEM",
    )
    group.add_argument(
        "--auth",
        action="append",
        choices=MODES,
        help="how callers prove who they are; may be repeated. Without it: keys if the store has "
        "any, else anyone may call",
    )
    group.add_argument(
        "--jwt-keys", metavar="FILE|URL", help="the issuer's JWKS: a file, or an https URL"
    )
    group.add_argument("--jwt-issuer", metavar="ISS", help="the `iss` that a JWT must have")
    group.add_argument("--jwt-audience", metavar="AUD", help="the `aud` that a JWT must have")
    usual = JwtSettings("", "", "")
    group.add_argument(
        "--jwt-skew",
        type=float,
        default=usual.skew,
        metavar="SECONDS",
        help="how much the issuer's clock and the server's may differ",
    )
    for claim in ("tenant", "owner", "roles"):
        group.add_argument(
            f"--jwt-{claim}",
            default=getattr(usual, claim),
            metavar="CLAIM",
            help=f"the claim of a JWT that names the {claim}",
        )
    group.add_argument(
        "--insecure",
        action="store_true",
        help="allow other machines to connect without TLS or authentication",
    )


def read_options(parser: argparse.ArgumentParser, options: argparse.Namespace) -> IdentitySettings:
    """Return the settings of the options that `add_options` has added. End the process if they
    contradict each other."""
    auth = tuple(dict.fromkeys(options.auth or ()))
    if NONE in auth and len(auth) > 1:
        parser.error("--auth none can't be beside another --auth")
    if (options.tls_cert is None) != (options.tls_key is None):
        parser.error("--tls-cert and --tls-key belong together")
    if options.tls_client_ca is not None and options.tls_cert is None:
        parser.error("--tls-client-ca needs --tls-cert and --tls-key")
    if CERTIFICATES in auth and options.tls_client_ca is None:
        parser.error("--auth certificates needs --tls-client-ca")
    tls = None
    if options.tls_cert is not None:
        tls = TlsFiles(options.tls_cert, options.tls_key, options.tls_client_ca)
    return IdentitySettings(auth, tls, _jwt(parser, options, JWT in auth), options.insecure)


def _jwt(
    parser: argparse.ArgumentParser, options: argparse.Namespace, is_enabled: bool
) -> JwtSettings | None:
    needed = {
        "--jwt-keys": options.jwt_keys,
        "--jwt-issuer": options.jwt_issuer,
        "--jwt-audience": options.jwt_audience,
    }
    missing = [flag for flag, value in needed.items() if not value]
    if not is_enabled:
        if len(missing) < len(needed):
            parser.error("--jwt-keys, --jwt-issuer and --jwt-audience need --auth jwt")
        return None
    if missing:
        parser.error(f"--auth jwt needs {', '.join(missing)}")
    if options.jwt_keys.startswith("http://") and not _is_local(options.jwt_keys):
        parser.error("--jwt-keys must be a file or an https URL: its content decides who may call")
    return JwtSettings(
        options.jwt_keys,
        options.jwt_issuer,
        options.jwt_audience,
        options.jwt_skew,
        options.jwt_tenant,
        options.jwt_owner,
        options.jwt_roles,
    )


def _is_local(url: str) -> bool:
    from urllib.parse import urlsplit

    return is_loopback(urlsplit(url).hostname or "")
