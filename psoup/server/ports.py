"""Sockets that are bound to the address of a port."""

from __future__ import annotations

import socket


def bound_socket(host: str, port: int, *options: int) -> socket.socket:
    """Return a socket with these options of the socket level that has the address of a port; port 0
    chooses a free one. Raise OSError if it is not free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    place = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)[0][4]
    # asyncio sets TCP_NODELAY only on sockets that name their protocol. Without it the second write
    # of a response waits for the client's delayed acknowledgement, 40 ms.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        for option in options:
            bound.setsockopt(socket.SOL_SOCKET, option, 1)
        bound.bind(place)
    except OSError as error:
        bound.close()
        raise OSError(error.errno, f"can't listen on {host}:{port}: {error.strerror}") from None
    return bound
