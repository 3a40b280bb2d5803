"""The columns of every table. docs/reference/formats/ says what each one means."""

from __future__ import annotations

import pyarrow as pa

from datastem.codec import INSTANT

FORMAT = 11

LOG = pa.schema(
    [
        ("ordinal", pa.int32()),
        ("kind", pa.string()),
        ("tenant", pa.string()),
        ("owner", pa.string()),
        ("stamp", INSTANT),
        ("stream_id", pa.int64()),
        ("publisher", pa.string()),
        ("sequence", pa.int64()),
        ("mark", pa.binary()),
        ("lease", pa.int64()),
        ("rows", pa.int64()),
        ("first_row_id", pa.int64()),
        ("late_rows", pa.int64()),
        ("min_ts", INSTANT),
        ("max_ts", INSTANT),
        ("before", INSTANT),
        ("reached", INSTANT),
        ("digest", pa.binary()),
        ("request_digest", pa.binary()),
        ("body", pa.string()),
        ("payload", pa.binary()),
        ("server", pa.string()),
        ("clock", INSTANT),
        # Who acted, if it is not the owner.
        ("actor", pa.string()),
    ]
)

CATALOG = pa.schema(
    [
        ("stream_id", pa.int64()),
        ("tenant", pa.string()),
        ("owner", pa.string()),
        ("name", pa.string()),
        ("schema", pa.string()),
        ("schema_version", pa.int32()),
        ("position", pa.int64()),
        ("ended", pa.bool_()),
    ]
)

# The legs of a registration after its first: an empty list or NULL if it has one leg. Triggers
# after the first have the same type.
MORE_LEGS = pa.list_(pa.struct([("stream_id", pa.int64()), ("predicate_id", pa.int64())]))

REGISTRATIONS = pa.schema(
    [
        ("handle", pa.binary()),
        ("tenant", pa.string()),
        ("owner", pa.string()),
        ("client_key", pa.string()),
        ("stream_id", pa.int64()),
        ("predicate_id", pa.int64()),
        ("trigger_stream_id", pa.int64()),
        ("trigger_id", pa.int64()),
        ("text", pa.string()),
        ("parameters", pa.string()),
        ("query", pa.string()),
        ("lease", pa.int64()),
        ("stamp", INSTANT),
        ("position", pa.int64()),
        ("ended", pa.bool_()),
        ("more_legs", MORE_LEGS),
        ("composite_id", pa.int64()),
        ("composite_predicate_id", pa.int64()),
        ("views", pa.string()),
        ("more_triggers", MORE_LEGS),
    ]
)

PREDICATES = pa.schema(
    [
        ("predicate_id", pa.int64()),
        ("tenant", pa.string()),
        ("stream_id", pa.int64()),
        ("key", pa.string()),
        ("registrations", pa.int64()),
        ("position", pa.int64()),
        ("ended", pa.bool_()),
    ]
)

COMPOSITES = pa.schema(
    [
        ("composite_id", pa.int64()),
        ("tenant", pa.string()),
        ("legs", pa.list_(pa.int64())),
        ("factors", pa.string()),
        ("span", pa.int64()),
        ("position", pa.int64()),
        ("ended", pa.bool_()),
    ]
)

PUBLISHERS = pa.schema(
    [
        ("tenant", pa.string()),
        ("owner", pa.string()),
        ("publisher", pa.string()),
        ("sequence", pa.int64()),
        ("request_digest", pa.binary()),
        ("first_row_id", pa.int64()),
        ("rows", pa.int64()),
        ("total_rows", pa.int64()),
        ("mark", pa.binary()),
        ("lease", pa.int64()),
        ("stamp", INSTANT),
        ("position", pa.int64()),
        ("ended", pa.bool_()),
    ]
)

LEASES = pa.schema(
    [
        ("handle", pa.binary()),
        ("tenant", pa.string()),
        ("renewed", INSTANT),
        ("expired", INSTANT),
        ("position", pa.int64()),
        ("ended", pa.bool_()),
        # The owner of an expired registration.
        ("owner", pa.string()),
    ]
)

# Access keys, grants, policies, filled policies, quotas and hooks: `body` is the value as JSON.
ACCESS = pa.schema(
    [
        ("kind", pa.string()),
        ("id", pa.string()),
        ("tenant", pa.string()),
        ("body", pa.string()),
        ("position", pa.int64()),
        ("ended", pa.bool_()),
    ]
)

# Which process began to append at which version of the log: rows are only ever added.
WRITERS = pa.schema(
    [
        ("version", pa.int64()),
        ("mark", pa.int64()),
        ("position", pa.int64()),
        ("ended", pa.bool_()),
    ]
)

# Which rows were erased: rows are only ever added, and end with their stream.
ERASURES = pa.schema(
    [
        ("stream_id", pa.int64()),
        ("erased", pa.int64()),
        ("stamp", INSTANT),
        ("count", pa.int64()),
        ("rows", pa.binary()),
        ("digest", pa.int64()),
        ("salt", pa.binary()),
        ("position", pa.int64()),
        ("ended", pa.bool_()),
    ]
)

# The rules of time zones, as JSON.
ZONES = pa.schema(
    [
        ("zone", pa.string()),
        ("version", pa.int64()),
        ("rules", pa.string()),
        ("position", pa.int64()),
        ("ended", pa.bool_()),
    ]
)

# What administrators did: rows are only ever added.
AUDIT = pa.schema(
    [
        ("position", pa.int64()),
        ("stamp", INSTANT),
        ("tenant", pa.string()),
        ("owner", pa.string()),
        ("action", pa.string()),
        ("object", pa.string()),
        ("detail", pa.string()),
        ("server", pa.string()),
    ]
)

COVERAGE = pa.schema(
    [
        ("stream_id", pa.int64()),
        ("predicate_lo", pa.int64()),
        ("predicate_hi", pa.int64()),
        ("row_lo", pa.int64()),
        ("row_hi", pa.int64()),
    ]
)

MATCHES = pa.schema(
    [
        ("stream_id", pa.int64()),
        ("segment", pa.int64()),
        ("predicate_id", pa.int64()),
        ("block", pa.int64()),
        ("lo", pa.int64()),
        ("hi", pa.int64()),
        ("count", pa.int64()),
        ("bitmap", pa.binary()),
    ]
)
# A segment is 16 blocks: `segment = block >> SEGMENT_BITS`.
SEGMENT_BITS = 4

CLOSURES = pa.schema(
    [
        ("stream_id", pa.int64()),
        ("segment", pa.int64()),
        ("row_id", pa.int64()),
        ("end", INSTANT),
        ("by", pa.int64()),
        ("epoch", pa.int64()),
    ]
)

REACHED = pa.schema(
    [
        ("stream_id", pa.int64()),
        ("reached", INSTANT),
        ("position", pa.int64()),
        ("stamp", INSTANT),
        ("before", INSTANT),
    ]
)
REACHED_BOUNDS = ("stream_id", "reached", "position", "stamp")


# The rows of a row group of a stem, at most: a server reads a row group for a single row of it.
STEM_GROUP_ROWS = 1 << 14


def combinations_schema(legs: int) -> pa.Schema:
    """Return the columns of `stems/<id>` of a composite with `legs` legs."""
    parts = [(combination_part(number), pa.int64()) for number in range(legs)]
    return pa.schema(
        [
            ("_row_id", pa.int64()),
            ("_ts", INSTANT),
            ("_until", INSTANT),
            ("_position", pa.int64()),
            *parts,
        ]
    )


def combination_part(number: int) -> str:
    """Return the column with the row ids of a leg of a composite."""
    return f"_part{number}"


# The table `joins/<id>` of a composite.
JOINS = pa.schema(
    [
        ("bucket", pa.int64()),
        ("side", pa.int32()),
        ("key", pa.int64()),
        ("row_id", pa.int64()),
        ("ts", INSTANT),
        ("position", pa.int64()),
    ]
)

EPOCHS = pa.schema(
    [
        ("epoch", pa.int64()),
        ("kind", pa.string()),
        ("log_version", pa.int64()),
        ("position", pa.int64()),
        ("clock", INSTANT),
        ("made_at", INSTANT),
        ("next_predicate_id", pa.int64()),
        ("outages", pa.list_(pa.int64())),
        ("incarnation", pa.string()),
        ("jump_count", pa.int64()),
        ("jump_total", pa.int64()),
        (
            "jumps",
            pa.list_(
                pa.struct(
                    [
                        ("number", pa.int64()),
                        ("before", INSTANT),
                        ("to", INSTANT),
                        ("server", pa.string()),
                        ("agree", pa.int64()),
                        ("settle", pa.int64()),
                        ("total", pa.int64()),
                        ("confirmed", pa.string()),
                    ]
                )
            ),
        ),
        (
            "holes",
            pa.list_(
                pa.struct(
                    [
                        ("stream_id", pa.int64()),
                        ("row_lo", pa.int64()),
                        ("row_hi", pa.int64()),
                        ("ts_lo", INSTANT),
                        ("ts_hi", INSTANT),
                        ("file", pa.string()),
                    ]
                )
            ),
        ),
        (
            "accepted",
            pa.list_(
                pa.struct(
                    [
                        ("stream_id", pa.int64()),
                        ("row_lo", pa.int64()),
                        ("row_hi", pa.int64()),
                    ]
                )
            ),
        ),
        (
            "quarantine",
            pa.list_(
                pa.struct(
                    [
                        ("kind", pa.string()),
                        ("id", pa.int64()),
                        ("stream_id", pa.int64()),
                        ("reason", pa.string()),
                        ("since", INSTANT),
                        ("position", pa.int64()),
                    ]
                )
            ),
        ),
        ("versions", pa.map_(pa.string(), pa.int64())),
        (
            "streams",
            pa.list_(
                pa.struct(
                    [
                        ("stream_id", pa.int64()),
                        ("high", pa.int64()),
                        ("reached", INSTANT),
                        ("version", pa.int64()),
                        ("late_rows", pa.int64()),
                        ("leap_owner", pa.string()),
                        ("leap_publisher", pa.string()),
                        ("leap_reached", INSTANT),
                        ("leap_stamp", INSTANT),
                    ]
                )
            ),
        ),
        (
            "composites",
            pa.list_(
                pa.struct(
                    [
                        ("composite_id", pa.int64()),
                        ("high", pa.int64()),
                        ("version", pa.int64()),
                        ("joins_version", pa.int64()),
                        ("since", pa.int64()),
                        ("highs", pa.list_(pa.int64())),
                        ("admitted", pa.list_(pa.list_(pa.int64()))),
                        (
                            "predicates",
                            pa.list_(pa.struct([("low", pa.int64()), ("high", pa.int64())])),
                        ),
                        ("suspended", pa.bool_()),
                        ("order", pa.string()),
                    ]
                )
            ),
        ),
        ("unclosed", pa.map_(pa.int64(), pa.int64())),
        ("erased", pa.int64()),
        ("wiped", pa.int64()),
    ]
)

# The tables an epoch names, besides the stems, and the joins of composites.
ENGINE_TABLES = (
    "catalog",
    "registrations",
    "predicates",
    "composites",
    "publishers",
    "leases",
    "access",
    "writers",
    "erasures",
    "zones",
    "audit",
    "coverage",
    "matches",
    "closures",
    "reached",
)

# Those that are partitioned, by stream and segment.
SEGMENTED = ("matches", "closures")
SEGMENT_PARTITION = ("stream_id", "segment")

TABLES: dict[str, pa.Schema] = {
    "log": LOG,
    "catalog": CATALOG,
    "registrations": REGISTRATIONS,
    "predicates": PREDICATES,
    "composites": COMPOSITES,
    "publishers": PUBLISHERS,
    "leases": LEASES,
    "access": ACCESS,
    "writers": WRITERS,
    "erasures": ERASURES,
    "zones": ZONES,
    "audit": AUDIT,
    "coverage": COVERAGE,
    "matches": MATCHES,
    "closures": CLOSURES,
    "reached": REACHED,
    "epochs": EPOCHS,
}
