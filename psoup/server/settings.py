"""The settings of a server, and the limits on names, texts and leases.

Every limit is enforced with its value in the message.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from google.protobuf.duration_pb2 import Duration

from datastem.accept import Limits
from datastem.instants import SECOND
from psoup.errors import BadRequest
from psoup.monitoring.settings import MonitoringSettings
from psoup.process_log import LogSettings
from psoup.server.group.membership import Membership
from psoup.server.identity.settings import IdentitySettings
from psoup.texts import NAME_BYTES, is_printable_name

MIB = 1 << 20
_MAX_LEASE_SECONDS = 100 * 366 * 24 * 3600
# Threads that compute at once: a core each, and one for first chunks.
WORKERS = max(3, min(8, (os.cpu_count() or 1) + 1))


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a server. `durability` is "fsync", or "none" to give up what a power cut
    takes.

    Times are seconds. `memory` bounds blocks of rows, matches and requests under way together; a
    request waits for room as long as `patience`. Rows are refused while the engine has more than
    `log_bytes` of the log yet to consume. `compute_rows` bounds what one answer may evaluate on the
    spot, `join_pairs` the pairs of rows its joins may look at. `calls` and `watches` bound how many
    are under way at once; a watch is no call there. With a clock ahead of the others by more than
    `clock_limit` a server appends nothing; a jump of its stamps is taken for true after
    `clock_settle` of later ones. A row policy with claims filled in is forgotten if no call has
    used it for `policy_lease`. `servers` processes listen on the port; one of them has its place in
    that `group`, and a share of the memory, the calls and the watches. With `monitoring` it has a
    port for metrics. It stays open for `drain_delay` after it has said that it stops.
    """

    store: Path
    host: str = "127.0.0.1"
    port: int = 0
    end_with_stdin: bool = False
    umask: int | None = None
    durability: str = "fsync"
    memory: int = 512 * MIB
    batch: Limits = field(default_factory=Limits)
    message_bytes: int = 16 * MIB
    query_bytes: int = 64 << 10
    columns: int = 1000
    registrations_per_call: int = 100_000
    compute_rows: int = 20_000_000
    join_pairs: int = 20_000_000
    wait: float = 30.0
    poll: float = 0.005
    group_events: int = 4096
    group_bytes: int = 64 * MIB
    piece_bytes: int = MIB
    sync_bytes: int = 256 << 10
    token_key_file: Path | None = None
    default_lease: int = 30 * 24 * 3600
    workers: int = WORKERS
    calls: int = 4000
    watches: int = 10_000
    drain: float = 5.0
    patience: float = 10.0
    log_bytes: int = 64 << 30
    clock_limit: float = 600.0
    clock_settle: float = 7 * 24 * 3600.0
    identity: IdentitySettings = IdentitySettings()
    policy_lease: int = 30 * 24 * 3600
    servers: int = 1
    group: Membership | None = None
    log: LogSettings = LogSettings()
    monitoring: MonitoringSettings | None = None
    drain_delay: float = 0.0


# ---- limits of names and texts


def check_name(name: str, field: str) -> None:
    """Raise BadRequest for a name that is too long, or has characters that names may not have."""
    if not is_printable_name(name):
        raise BadRequest(
            f"{field} has control characters, or characters that can't be encoded",
            reason="BAD_NAME",
            field=field,
            expected="a name without them",
            got=ascii(name[:60]),
        )
    size = len(name.encode())
    if size > NAME_BYTES:
        raise BadRequest(
            f"{field} has {size:,} bytes; at most {NAME_BYTES:,} are taken",
            reason="NAME_TOO_LONG",
            field=field,
            expected=f"at most {NAME_BYTES} bytes",
            got=f"{size} bytes",
        )


def lease_micros(lease: Duration, field: str) -> int:
    """Return the microseconds of a lease. Raise BadRequest for none, or a hundred years."""
    micros = lease.seconds * SECOND + lease.nanos // 1000
    if not 0 < micros <= _MAX_LEASE_SECONDS * SECOND:
        raise BadRequest(
            "a lease is longer than nothing and shorter than a hundred years",
            field=field,
            got=f"{lease.seconds} seconds",
        )
    return micros


def check_text(text: str, settings: Settings) -> None:
    """Raise BadRequest for a query that is too long to be read."""
    size = len(text.encode())
    if size > settings.query_bytes:
        raise BadRequest(
            f"a text of {size:,} bytes; at most {settings.query_bytes:,} are taken",
            reason="TEXT_TOO_LONG",
            field="sql",
            expected=f"at most {settings.query_bytes} bytes",
            got=f"{size} bytes",
        )
