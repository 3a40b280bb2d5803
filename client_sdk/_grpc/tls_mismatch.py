"""The reason for a failed connection that gRPC does not name: only one side speaks TLS.

gRPC reports such a failure as a closed socket, or, if the host has several addresses, as what the
last of them did. So the server is asked: a TLS handshake that it completes proves that it speaks
TLS, bytes that are not TLS prove that it does not. Nothing of the call is sent, no token either.
"""

from __future__ import annotations

import re
import socket
import ssl

from client_sdk._exceptions import ConnectionFailed, PsoupError

# Signs in gRPC's message that a server may have been reached. Without them nothing is asked, so
# that a device without a network does not wait twice.
_SIGNS = ("Socket closed", "handshake failed", "onnection reset", "Connection refused")
_HOST_AND_PORT = re.compile(r"(?:dns:(?:///)?|ipv[46]:)?(\[[^\]]+\]|[^:/]+):(\d+)")
_PROBE_SECONDS = 2.0


def may_be_mismatch(failure: PsoupError, target: str) -> bool:
    """Return whether it is worth asking the server if it speaks TLS."""
    return (
        isinstance(failure, ConnectionFailed)
        and not failure.detail.store_id
        and any(sign in failure.message for sign in _SIGNS)
        and _HOST_AND_PORT.fullmatch(target) is not None
    )


def explain_mismatch(failure: PsoupError, target: str, encrypts: bool) -> PsoupError:
    """Return an error that names the mismatch, or `failure` if there is none.

    `encrypts` is True if the client speaks TLS. The call blocks for up to `_PROBE_SECONDS`.
    """
    server_encrypts = _speaks_tls(target)
    if server_encrypts is None or server_encrypts is encrypts:
        return failure
    if server_encrypts:
        message = (
            f"{target} speaks TLS, and this client does not: give Credentials(ca=…), or "
            "Credentials(tls=True) if the system knows its authority (--tls-ca FILE, --tls)"
        )
    else:
        message = (
            f"{target} does not speak TLS, and this client does: leave out ca, cert and tls of the "
            "credentials (--tls-ca, --tls-cert, --tls), or start the server with --tls-cert and "
            "--tls-key"
        )
    return ConnectionFailed(message, code=failure.code)


def _speaks_tls(target: str) -> bool | None:
    """Return whether the server at the target speaks TLS; None if that can't be found out."""
    match = _HOST_AND_PORT.fullmatch(target)
    assert match is not None, "the caller has asked may_be_mismatch"
    host, port = match[1].strip("[]"), int(match[2])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Any certificate will do: nothing is sent, and only the protocol matters.
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    try:
        with (
            socket.create_connection((host, port), timeout=_PROBE_SECONDS) as connection,
            context.wrap_socket(connection, server_hostname=host),
        ):
            return True
    except ssl.SSLError as error:
        return False if error.reason == "WRONG_VERSION_NUMBER" else None
    except (OSError, ValueError):
        return None
