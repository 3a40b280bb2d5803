"""What applied entries changed."""

from __future__ import annotations

from dataclasses import dataclass, field

from psoup.store.log.position import Position
from psoup.store.state.streams import PublisherKey


@dataclass(slots=True)
class Touched:
    """The ids of what applied entries changed, which the engine has to write. `altered` are the
    streams with another schema."""

    streams: set[int] = field(default_factory=set)
    altered: set[int] = field(default_factory=set)
    views: set[int] = field(default_factory=set)
    registrations: set[bytes] = field(default_factory=set)
    predicates: set[int] = field(default_factory=set)
    publishers: set[PublisherKey] = field(default_factory=set)
    leases: set[bytes] = field(default_factory=set)
    composites: set[int] = field(default_factory=set)
    access: set[tuple[str, str]] = field(default_factory=set)
    writers: set[int] = field(default_factory=set)
    erasures: set[tuple[int, Position]] = field(default_factory=set)
    zones: set[str] = field(default_factory=set)
