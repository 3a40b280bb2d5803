"""Addresses that processes listen on: as options give them, who reaches them, and their sockets."""

from __future__ import annotations

import argparse
import ipaddress
import socket


def parse_address(text: str, example: str) -> tuple[str, int]:
    """Return host and port. Raise ArgumentTypeError, which shows an example."""
    host, _, digits = text.rpartition(":")
    if not host or not digits.isdecimal() or int(digits) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r}: write HOST:PORT, as {example}")
    return host.strip("[]"), int(digits)


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a host."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


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
