"""Which addresses receivers of changes may have, and connections to no others."""

from __future__ import annotations

import ipaddress
import os
import socket
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from client_sdk._exceptions import BadPull

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


class RefusedAddress(OSError):
    """A receiver has an address that is not allowed."""


@dataclass(frozen=True, slots=True)
class Receivers:
    """The addresses that changes may be posted to.

    Those in `networks` may always be. Link-local ones may not be otherwise: machines of a cloud
    have their metadata there. With `public_only` private and loopback ones may not be, either.
    """

    networks: tuple[Network, ...] = ()
    public_only: bool = False

    @classmethod
    def only(cls, networks: Sequence[str]) -> Receivers:
        """Return public addresses and these networks. Raises BadPull."""
        try:
            return cls(tuple(ipaddress.ip_network(text) for text in networks), public_only=True)
        except ValueError as error:
            raise BadPull(f'allow: {error}; write a network as "10.0.0.0/8"') from None

    def permits(self, address: Address) -> bool:
        """Return whether changes may be posted to an address."""
        # An IPv4 address that is written as one of IPv6 is reached as that of IPv4.
        address = getattr(address, "ipv4_mapped", None) or address
        if any(address in network for network in self.networks):
            return True
        if address.is_link_local or address.is_multicast or address.is_unspecified:
            return False
        return address.is_global or not self.public_only

    def check(self, host: str) -> None:
        """Raise BadPull if a host is an address that is not permitted. Names are checked when they
        are resolved."""
        try:
            address = ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            return
        if not self.permits(address):
            raise BadPull(f"changes_to: {_refusal(host, address)}")

    def connect(self, host: str, port: int, timeout: float) -> socket.socket:
        """Return a connection to one of the host's addresses. Raises OSError.

        Each address is checked before it is connected to, so that a name that changes its address
        between check and connection gains nothing.
        """
        failure: OSError = OSError(f"{host} has no address")
        for family, kind, protocol, _, place in socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        ):
            address = ipaddress.ip_address(str(place[0]).partition("%")[0])
            if not self.permits(address):
                failure = RefusedAddress(_refusal(host, address))
                continue
            connection = socket.socket(family, kind, protocol)
            try:
                connection.settimeout(timeout)
                connection.connect(place)
                return connection
            except OSError as error:
                connection.close()
                failure = error
        raise failure


def _refusal(host: str, address: Address) -> str:
    kind = "link-local" if address.is_link_local else "not a public address"
    name = "" if str(address) == host else f"{host} is "
    return f'{name}{address}, {kind}; allow = ["{address}"] or --allow {address} permits it'


def is_operators(path: Path) -> bool:
    """Return whether only this process's user, or root, may have written a file."""
    if not hasattr(os, "geteuid"):
        return True
    state = path.stat()
    others_may_write = state.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return state.st_uid in (0, os.geteuid()) and not others_may_write
