"""psoup health: whether a server is ready, for probes and scripts."""

from __future__ import annotations

import click
import grpc

from client_sdk import ConnectionFailed
from client_sdk._credentials import TransportCredentials
from client_sdk._session import targets_of
from psoup.cli.connection import Connection
from psoup.cli.output import echo
from psoup.cli.problems import refuse

_METHOD = "/grpc.health.v1.Health/Check"
_READY_SERVICE = b"psoup.v1.Psoup"
# HealthCheckResponse{status: SERVING}. The two messages are small enough to need no package.
_SERVING = b"\x08\x01"


@click.command()
@click.option("--live", is_flag=True, help="Ask only whether the server answers.")
@click.option(
    "--within",
    type=click.FloatRange(min=0.1),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for the answer.",
)
@click.pass_obj
def health(connection: Connection, live: bool, within: float) -> None:
    """Ask a server whether it is ready; it needs no credential.

    Exit codes: 0 ready, 1 not ready, 3 no server at the target.

    \b
    psoup health
    psoup --target store.example --tls-ca ca.pem health --live
    """
    target = targets_of(connection.target)[0]
    service = b"" if live else _READY_SERVICE
    status = _check(connection, target, service, within)
    if status != _SERVING:
        refuse(f"the server at {target} is not ready")
    echo(f"the server at {target} {'answers' if live else 'is ready'}")


def _check(connection: Connection, target: str, service: bytes, seconds: float) -> bytes:
    """Return the answer of a server's health service. Raise ConnectionFailed."""
    credentials = TransportCredentials(connection.credentials, [target]).channel_credentials()
    request = b"\x0a" + bytes([len(service)]) + service if service else b""
    channel = (
        grpc.insecure_channel(target)
        if credentials is None
        else grpc.secure_channel(target, credentials)
    )
    with channel:
        call = channel.unary_unary(_METHOD, lambda message: message, lambda message: message)
        try:
            answer: bytes = call(request, timeout=seconds)
        except grpc.RpcError as error:
            raise ConnectionFailed(
                f"no answer from a server at {target}: {error.details()}"
            ) from None
    return answer
