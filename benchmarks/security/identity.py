"""Authentication by itself, and an invoke with and without TLS, keys, JWTs and certificates."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.report import Report
from benchmarks.timing import interleaved, repeated
from client_sdk import Client, Credentials
from datastem.instants import SECOND
from psoup.access.keys import new_key
from psoup.server.identity.key_sets import KeySet
from psoup.server.identity.settings import JwtSettings
from psoup.server.identity.static_keys import StaticKeys
from psoup.server.identity.web_tokens import WebTokens
from psoup.store import State, Store
from psoup.write.keys import append_key
from tests.support.authority import AUDIENCE, ISSUER, Authority, Issuer
from tests.support.server.process import ServerProcess

SMALL, LARGE = 100, 200_000
_KEYS = 10_000
_CERTIFICATE = "certificate, no token"


def measure(folder: Path, quick: bool, report: Report) -> None:
    folder.mkdir()
    issuer = Issuer()
    jwks = folder / "jwks.json"
    jwks.write_bytes(issuer.jwks())
    asyncio.run(_alone(jwks, issuer, 200 if quick else 2000, report))
    with _servers(folder, issuer, jwks) as ways:
        _invokes(ways, 60 if quick else 2000, report)
        _handshakes(ways, 5 if quick else 100, report)


# ---- by itself


async def _alone(jwks: Path, issuer: Issuer, rounds: int, report: Report) -> None:
    """The server's own work for one call, without any wire."""
    state = State()
    keys_and_secrets = [new_key("acme", f"o{number}", ["reader"], "", 1) for number in range(_KEYS)]
    for key, _ in keys_and_secrets:
        state.access.put(key)

    async def catch_up() -> None:
        raise AssertionError("every key is known")

    keys = StaticKeys(lambda: state, _now, catch_up)
    _tell(
        report,
        f"a key among {_KEYS:,}",
        await _seconds_each(keys.principal, [text for _, text in keys_and_secrets[:rounds]]),
    )
    key_set = KeySet(str(jwks))
    key_set.load()
    settings = JwtSettings(str(jwks), ISSUER, AUDIENCE)
    for algorithm in issuer.keys:
        tokens = WebTokens(settings, key_set, _now)
        web_tokens = [issuer.token(algorithm, sub=f"o{number}") for number in range(rounds)]
        _tell(
            report,
            f"a JWT ({algorithm}) for the first time",
            await _seconds_each(tokens.principal, web_tokens),
        )
        _tell(
            report, f"a JWT ({algorithm}) again", await _seconds_each(tokens.principal, web_tokens)
        )


def _now() -> int:
    return int(time.time() * SECOND)


async def _seconds_each(
    call: Callable[[str], Coroutine[Any, Any, Any]], texts: Sequence[str]
) -> float:
    """Seconds of processor time for one."""
    began = time.process_time()
    for text in texts:
        await call(text)
    return (time.process_time() - began) / len(texts)


def _tell(report: Report, what: str, seconds: float) -> None:
    report.add(f"{what}, alone", 1000 * seconds, "ms")


# ---- through servers


@dataclass(frozen=True)
class Way:
    """A way to call one of the servers; all of them are of one store."""

    address: str
    credentials: Credentials | None

    def client(self) -> Client:
        return Client(self.address, tenant="main", owner="main", credentials=self.credentials)


@contextmanager
def _servers(folder: Path, issuer: Issuer, jwks: Path) -> Iterator[dict[str, Way]]:
    authority = Authority(folder / "pki")
    pair, client = authority.server(), authority.client("main", "main")
    key, text = new_key("main", "main", ["operator"], "", 1)
    append_key(Store.open(folder / "store", create=True, sync=False), key)
    jwt = ("--auth", "jwt", "--jwt-keys", str(jwks), "--jwt-issuer", ISSUER)
    tls = ("--tls-cert", str(pair.cert), "--tls-key", str(pair.key))
    both = (*tls, "--tls-client-ca", str(authority.ca), "--auth", "certificates")
    options = {
        "nobody asked, no TLS": (("--auth", "none"), None),
        "key, no TLS": (("--auth", "keys"), Credentials(text)),
        "nobody asked, TLS": ((*tls, "--auth", "none"), Credentials(ca=authority.ca)),
        "key, TLS": ((*tls, "--auth", "keys"), Credentials(text, ca=authority.ca)),
        "JWT, TLS": (
            (*tls, *jwt, "--jwt-audience", AUDIENCE),
            Credentials(
                issuer.token(tenant="main", sub="main", roles=["operator"]), ca=authority.ca
            ),
        ),
        f"{_CERTIFICATE}, TLS both ways": (
            both, Credentials(ca=authority.ca, cert=client.cert, key=client.key)
        ),
    }  # fmt: skip
    with ExitStack() as running:
        ways = {}
        for name, (flags, credentials) in options.items():
            server = ServerProcess(folder / "store", *flags, "--durability", "none")
            running.callback(server.stop)
            ways[name] = Way(server.address, credentials)
        yield ways


def _invokes(ways: dict[str, Way], rounds: int, report: Report) -> None:
    with ExitStack() as open_clients:
        clients = {name: open_clients.enter_context(way.client()) for name, way in ways.items()}
        plain = next(iter(clients.values()))
        plain.define("CREATE STREAM s (a BIGINT, t TEXT)")
        rows = [{"a": number, "t": f"text number {number}"} for number in range(LARGE)]
        plain.publish("s", rows)
        for count, turns in ((SMALL, rounds), (LARGE, max(5, rounds // 50))):
            handle = plain.register(f"SELECT a, t FROM s ROWS {count}").handle
            calls = {
                name: repeated(client.invoke, handle, least_position=plain.position)
                for name, client in clients.items()
            }
            interleaved(calls, 5)
            times = interleaved(calls, turns)
            base = times[next(iter(times))]
            for name, measured in times.items():
                beside: dict[str, Any] = {}
                if measured is not base:
                    beside = {"ratio": measured.p50 / base.p50, "beside": "the first"}
                what = f"invoke of {count:,} rows, {name}"
                report.add(f"{what}, p50", 1000 * measured.p50, "ms", **beside)
                if count == SMALL:
                    report.add(f"{what}, p99", 1000 * measured.p99, "ms")


def _handshakes(ways: dict[str, Way], rounds: int, report: Report) -> None:
    """A new client each time: the line, and one call."""

    def first_call(way: Way) -> None:
        with way.client() as client:
            client.stream("s")

    times = interleaved({name: repeated(first_call, way) for name, way in ways.items()}, rounds)
    base = times[next(iter(times))]
    for name, measured in times.items():
        ratio = (
            {} if measured is base else {"ratio": measured.p50 / base.p50, "beside": "the first"}
        )
        report.add(f"connect and one call, {name}, p50", 1000 * measured.p50, "ms", **ratio)
