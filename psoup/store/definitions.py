"""The tables as they are created: their names, and a comment for every column.

Both are Delta table metadata, for people who open the folder with Spark, DuckDB or `deltalake`.
Only operators can read the folder. The names and comments hold nothing that the tables do not hold:
stream names, which never change, and the types of columns.

Parquet files carry no comments: rows are written with the schemas of `psoup.store.layout`.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from datastem.codec import stem_schema
from datastem.schema import StreamSchema
from psoup.store.delta import TableDefinition
from psoup.store.layout import (
    JOINS,
    SEGMENT_PARTITION,
    SEGMENTED,
    TABLES,
    combination_part,
    combinations_schema,
)

_TENANT = "the tenant that the row belongs to"
_OWNER = "the owner within the tenant"
_NEWEST_POSITION = "log position of the change; of the rows of one key the greatest one counts"
_ENDED = "true if the row says that its key has ended"

_COMMENTS: Mapping[str, Mapping[str, str]] = {
    "log": {
        "ordinal": "place in the commit, from 0; with the table version it is the position",
        "kind": "what happened: data, create, alter, drop, register, unregister and others",
        "tenant": "the tenant that the event belongs to",
        "owner": "the owner that the event is made for",
        "stamp": "when the server accepted the event; never less than the stamp before",
        "stream_id": "the stream or view of the event; NULL if it has none",
        "publisher": "name of the publisher of a batch; empty if the batch has no identity",
        "sequence": "the publisher's number of a batch, from 1; 0 if it has no identity",
        "mark": "what the publisher noted with the batch for its own use; NULL if nothing",
        "lease": "microseconds for which the publisher is remembered after it; NULL is for ever",
        "rows": "number of rows in the payload; 0 for a heartbeat",
        "first_row_id": "row id of the first row in the payload; the others follow",
        "late_rows": "rows that came after NOW of the stream had passed their ts",
        "min_ts": "least ts of the rows, if they have an event time",
        "max_ts": "greatest ts of the rows, or the instant of a heartbeat",
        "before": "how far the stream had come before the event; NULL if it had not",
        "reached": "how far it had come after the event; NULL if it had not",
        "digest": "digest of the values in the payload of a batch",
        "request_digest": "digest of what the publisher sent; a repeat has the same",
        "body": "JSON of the events that are not data",
        "payload": "Arrow IPC stream with the rows of a batch, or of many registrations",
        "server": "name of the machine that wrote the event",
        "clock": "that machine's own clock when it wrote the event",
        "actor": "who acted, if that is not the owner; tenant/owner of another tenant",
    },
    "catalog": {
        "stream_id": "id of the stream or view; the rows of a stream are in stems/<stream_id>",
        "tenant": _TENANT,
        "owner": _OWNER,
        "name": "name of the stream or view",
        "schema": "JSON: columns, stream key, event time and retention, or the view's query",
        "schema_version": "1, and one more for each ALTER STREAM",
        "position": "log position of the change; of the rows of one id the greatest one counts",
        "ended": "always false; a dropped stream or view says so in its schema",
    },
    "registrations": {
        "handle": "16 random bytes that name the registration",
        "tenant": _TENANT,
        "owner": _OWNER,
        "client_key": "the client key that the owner registered it under; may be empty",
        "stream_id": "stream of the query's first leg",
        "predicate_id": "predicate of the query's first leg",
        "trigger_stream_id": "stream of the first trigger of REFRESH ON; 0 if there is none",
        "trigger_id": "predicate of the first trigger of REFRESH ON; 0 if there is none",
        "text": "the query as the client wrote it",
        "parameters": "JSON: the values of the query's parameters",
        "query": "JSON: the bound query without the predicates of its legs",
        "lease": "microseconds without contact after which the registration ends",
        "stamp": "when it was registered",
        "position": _NEWEST_POSITION,
        "ended": _ENDED,
        "more_legs": "streams and predicates of the legs after the first",
        "composite_id": "the composite that holds the query's join; 0 or NULL if there is none",
        "composite_predicate_id": "predicate over the composite's combinations; 0 if there is none",
        "views": "ids of the views that the query was bound through, separated by commas",
        "more_triggers": "streams and predicates of the triggers after the first",
    },
    "predicates": {
        "predicate_id": "id of the predicate; matches and coverage name it",
        "tenant": _TENANT,
        "stream_id": "the stream or composite whose rows it is matched over",
        "key": "predicate key: the normal form of the condition, as JSON",
        "registrations": "number of registrations and filled policies that share it",
        "position": _NEWEST_POSITION,
        "ended": _ENDED,
    },
    "composites": {
        "composite_id": "id of the composite; combinations are in stems/<id>, rows in joins/<id>",
        "tenant": _TENANT,
        "legs": "ids of the streams that are joined",
        "factors": "JSON: the conditions that connect the legs",
        "span": "microseconds that the rows of one combination are at most apart; NULL: any",
        "position": _NEWEST_POSITION,
        "ended": _ENDED,
    },
    "publishers": {
        "tenant": _TENANT,
        "owner": _OWNER,
        "publisher": "name of the publisher, unique for its owner",
        "sequence": "number of the last batch that was accepted",
        "request_digest": "digest of what was sent as that batch",
        "first_row_id": "row id of that batch's first row",
        "rows": "number of rows in that batch",
        "total_rows": "number of rows in all its batches",
        "mark": "what the publisher noted with that batch for its own use",
        "lease": "microseconds without a batch after which it is forgotten; NULL is never",
        "stamp": "when that batch was accepted",
        "position": "log position of that batch; of the rows of one publisher the greatest counts",
        "ended": "true if the publisher was forgotten",
    },
    "leases": {
        "handle": "handle of the registration",
        "tenant": "tenant of an expired registration",
        "renewed": "when the lease last began; NULL if the registration has expired",
        "expired": "when the registration expired; NULL if it is live",
        "position": _NEWEST_POSITION,
        "ended": _ENDED,
        "owner": "owner of an expired registration",
    },
    "access": {
        "kind": "key, grant, policy, filled, quota or hook",
        "id": "id of the access key, grant, policy, filled policy, quota or hook",
        "tenant": _TENANT,
        "body": "JSON of the value; keys are digests, and a hook's secret is sealed",
        "position": _NEWEST_POSITION,
        "ended": _ENDED,
    },
    "writers": {
        "version": "version of the log that the process wrote first",
        "mark": "random number of the process, to tell a restored back-up from the original",
        "position": "log position of the last event before the row was written",
        "ended": "always false",
    },
    "erasures": {
        "stream_id": "the stream",
        "erased": "log position of the erasure",
        "stamp": "when the rows were erased",
        "count": "number of the erased rows; 0: only their key is refused",
        "rows": "the row ids: runs of ids to skip and ids to take, each number as a varint",
        "digest": "SipHash of the stream key's digest under the salt; NULL without a key",
        "salt": "16 random bytes, the same for all erasures of a stream",
        "position": _NEWEST_POSITION,
        "ended": _ENDED,
    },
    "zones": {
        "zone": "name of the time zone",
        "version": "counts the rules that the store has had for the zone, from 1",
        "rules": "JSON: name, version, starts of offsets and the offsets, in seconds",
        "position": _NEWEST_POSITION,
        "ended": _ENDED,
    },
    "audit": {
        "position": "log position of the action; several rows may have one",
        "stamp": "when it happened",
        "tenant": "the tenant that it is about; empty if it is about the store",
        "owner": "who acted; tenant/owner if that is another tenant's",
        "action": "what was done, such as create stream, grant or revoke key",
        "object": "the name or id that it was done to",
        "detail": "details of the action; never a secret or a digest",
        "server": "name of the machine that took the call",
    },
    "coverage": {
        "stream_id": "the stream or composite",
        "predicate_lo": "least id of the predicates that the row speaks of",
        "predicate_hi": "id after the greatest of these predicates",
        "row_lo": "least row id that they have been matched over",
        "row_hi": "row id after the greatest one; NULL: up to the last row of the epoch",
    },
    "matches": {
        "stream_id": "the stream or composite",
        "segment": "partition: 16 blocks, block >> 4",
        "predicate_id": "the predicate that matches",
        "block": "65,536 row ids, row_id >> 16",
        "lo": "least row id that the bitmap speaks of",
        "hi": "row id after the greatest one that the bitmap speaks of",
        "count": "number of matching rows in the bitmap",
        "bitmap": "portable roaring bitmap of the low 16 bits of the matching row ids",
    },
    "closures": {
        "stream_id": "the stream, which has a stream key",
        "segment": "partition: 16 blocks, row_id >> 20",
        "row_id": "the row that ended",
        "end": "ts of the next row of its stream key; from then on the row is not current",
        "by": "row id that made the end known",
        "epoch": "epoch that added this row of the table",
    },
    "reached": {
        "stream_id": "the stream, which has an event time",
        "reached": "instant that the heartbeat took the stream to",
        "position": "log position of the heartbeat",
        "stamp": "when the server accepted the heartbeat",
        "before": "greatest ts of the stream before the heartbeat; NULL if it had none",
    },
    "epochs": {
        "epoch": "number of the epoch, from 1",
        "kind": "step, backfill, or the maintenance that made it",
        "log_version": "the log is consumed up to and including this version",
        "position": "position of the last consumed event",
        "clock": "stamp of the last consumed event",
        "made_at": "the engine's clock when it made the epoch",
        "next_predicate_id": "id of the next new predicate",
        "outages": "pairs: end of an outage, and the time lost so far, in microseconds",
        "incarnation": "incarnation of the store since its last repair or restore; NULL: the first",
        "jump_count": "number of clock jumps in the log",
        "jump_total": "length of all clock jumps together, in microseconds",
        "jumps": "the unconfirmed clock jumps and the last 16 confirmed ones",
        "holes": "rows that are lost, with the file that held them",
        "accepted": "lost rows whose loss the operator has accepted",
        "quarantine": "predicates and composites that fail and are set aside",
        "versions": "the version of each table that belongs to this epoch",
        "streams": "per stream: next row id, greatest ts, and version of its stem",
        "composites": "per composite: progress, and versions of its tables",
        "unclosed": "keyed streams whose closures are incomplete, and since which epoch",
        "erased": "position up to which erased rows have left the tables that this epoch names",
        "wiped": "position up to which erased rows have left the disk",
    },
}

_STEM_COMMENTS: Mapping[str, str] = {
    "_row_id": "row id: ascends in log order, unique in the stream",
    "_ts": "time of the row: its event time, or the stamp of its arrival",
    "_position": "log position of the batch that brought the row",
    "_stamp": "when the server accepted the batch; never falls as _row_id grows",
    "_before": "how far the stream had come before the batch; NULL if it had not",
    "_reached": "how far it had come after the batch; never falls either",
    "_op": "0: a row; 1: a delete, which ends the row of its stream key",
    "_key": "digest of the row's stream key",
}

_COMBINATION_COMMENTS: Mapping[str, str] = {
    "_row_id": "number of the combination",
    "_ts": "earliest ts of its rows",
    "_until": "latest ts of its rows",
    "_position": "greatest log position of its rows",
}

_JOIN_COMMENTS: Mapping[str, str] = {
    "bucket": "the highest 6 of the 63 bits of a hash; of an inequality: ts divided by the span",
    "side": "which leg of which condition the row stands for",
    "key": "hash of the join key, equal for equal ones; of an inequality: its value, in order",
    "row_id": "row id in the stem of the leg's stream",
    "ts": "ts of the row",
    "position": "log position of the row",
}


def system_table(name: str) -> TableDefinition:
    """Return the definition of one of the tables in `TABLES`."""
    partition_by = SEGMENT_PARTITION if name in SEGMENTED else ()
    return TableDefinition(_commented(TABLES[name], _COMMENTS[name]), name, partition_by)


def stem_table(schema: StreamSchema) -> TableDefinition:
    """Return the definition of the stem of a stream."""
    comments = dict(_STEM_COMMENTS) | {
        column.name: _declared(schema, column.name, str(column.type)) for column in schema.columns
    }
    return TableDefinition(_commented(stem_schema(schema), comments), f"stem of {schema.name}")


def combinations_table(composite_id: int, legs: int) -> TableDefinition:
    """Return the definition of the stem of a composite."""
    parts = {
        combination_part(leg): f"_row_id of the row of leg {leg}, in the stem of the leg's stream"
        for leg in range(legs)
    }
    columns = _commented(combinations_schema(legs), dict(_COMBINATION_COMMENTS) | parts)
    return TableDefinition(columns, f"combinations of composite {composite_id}")


def joins_table(composite_id: int) -> TableDefinition:
    """Return the definition of the table of a composite's rows by join key."""
    return TableDefinition(
        _commented(JOINS, _JOIN_COMMENTS), f"rows by join key of composite {composite_id}"
    )


def _declared(schema: StreamSchema, name: str, type_: str) -> str:
    label = schema.label(name)
    role = "" if label == name else f"; named {label} since it was renamed"
    if name == schema.ordered_by:
        role += "; the event time"
    if name in schema.key:
        role += "; part of the stream key"
    if schema.validity is not None and name in (schema.validity.starts, schema.validity.ends):
        role += f"; rows are valid {'from' if name == schema.validity.starts else 'until'} it"
    return f"declared as {type_}{role}"


def _commented(schema: pa.Schema, comments: Mapping[str, str]) -> pa.Schema:
    """Return the schema with a Delta comment for each column. Every column must have one."""
    return pa.schema([field.with_metadata({"comment": comments[field.name]}) for field in schema])
