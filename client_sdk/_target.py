"""Where a store is: a host with its port, or whatever else gRPC takes."""

from __future__ import annotations

DEFAULT_PORT = 7181
DEFAULT_TARGET = f"localhost:{DEFAULT_PORT}"


def with_port(target: str) -> str:
    """The target; a host by itself, as a name or in numbers, gets the port a store has by default.

    What names a scheme, as `unix:/run/psoup` or `dns:///host:1`, is gRPC's alone.
    """
    host = f"[{target}]" if target.count(":") > 1 and _is_address(target) else target
    bare = ":" not in host or host.endswith("]")
    return f"{host}:{DEFAULT_PORT}" if host and bare else host


def _is_address(target: str) -> bool:
    """Whether it is one of IPv6 by itself."""
    return all(character in "0123456789abcdefABCDEF:." for character in target)
