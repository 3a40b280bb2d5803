"""Reads the Delta tables of a store without PSoup: what they are, and which rows match a query.

    python examples/analyst.py my-store

prints the catalogue: each table, the stream it belongs to, and the version of the newest epoch.
It needs `deltalake` and `pyroaring`. docs/how-to/analyse.md shows queries in DuckDB and Spark.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
from deltalake import DeltaTable
from pyroaring import BitMap

BLOCK_BITS = 16


def newest_epoch(store: Path) -> dict[str, Any]:
    """Return the row of the newest epoch: the versions of all tables that belong together."""
    epochs = DeltaTable(store / "epochs").to_pyarrow_table().to_pylist()
    return max(epochs, key=lambda row: int(row["epoch"]))


def open_table(store: Path, name: str, epoch: dict[str, Any]) -> DeltaTable:
    """Return a table as of an epoch. A name is a folder: `matches`, or `stems/11`."""
    return DeltaTable(store / name, version=versions_of(epoch)[name])


def versions_of(epoch: dict[str, Any]) -> dict[str, int]:
    """Return the version of each table by its folder."""
    versions = dict(epoch["versions"])
    for stream in epoch["streams"]:
        versions[f"stems/{stream['stream_id']}"] = stream["version"]
    for composite in epoch["composites"]:
        versions[f"stems/{composite['composite_id']}"] = composite["version"]
        versions[f"joins/{composite['composite_id']}"] = composite["joins_version"]
    return versions


def newest_rows(store: Path, name: str, key: str, epoch: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the live rows of a table in which the row with the greatest position counts."""
    newest: dict[Any, dict[str, Any]] = {}
    for row in open_table(store, name, epoch).to_pyarrow_table().to_pylist():
        if row[key] not in newest or row["position"] >= newest[row[key]]["position"]:
            newest[row[key]] = row
    return [row for row in newest.values() if not row["ended"]]


def streams(store: Path, epoch: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the live streams with tenant, name, table, columns, NOW and number of row ids."""
    marks = {mark["stream_id"]: mark for mark in epoch["streams"]}
    live = []
    for row in newest_rows(store, "catalog", "stream_id", epoch):
        schema, mark = json.loads(row["schema"]), marks.get(row["stream_id"])
        if mark is not None and not schema.get("dropped"):
            live.append(
                {
                    "tenant": row["tenant"],
                    "stream": row["name"],
                    "table": f"stems/{row['stream_id']}",
                    "schema": schema,
                    "now": mark["reached"],
                    "row_ids": mark["high"],
                }
            )
    return live


def catalogue(store: Path) -> list[dict[str, Any]]:
    """Return every table of the newest epoch with its version and the stream it belongs to."""
    epoch = newest_epoch(store)
    names = {row["table"]: f"{row['tenant']}.{row['stream']}" for row in streams(store, epoch)}
    return [
        {"table": name, "stream": names.get(name, ""), "version": version}
        for name, version in sorted(versions_of(epoch).items())
    ]


def find_stream(store: Path, tenant: str, name: str, epoch: dict[str, Any]) -> dict[str, Any]:
    """Return the live stream of that name. Raises LookupError if there is none."""
    for stream in streams(store, epoch):
        if (stream["tenant"], stream["stream"]) == (tenant, name):
            return stream
    raise LookupError(f"tenant {tenant} has no stream {name} in epoch {epoch['epoch']}")


def matching_row_ids(
    store: Path, tenant: str, client_key: str, epoch: dict[str, Any]
) -> tuple[str, list[int]]:
    """Return the table that a registered query over one stream reads, and the matching row ids.

    The ids are those of WHERE, over all rows that the engine has matched. Apply the window.
    """
    registrations = newest_rows(store, "registrations", "handle", epoch)
    (query,) = [
        row for row in registrations if (row["tenant"], row["client_key"]) == (tenant, client_key)
    ]
    matches = open_table(store, "matches", epoch).to_pyarrow_dataset()
    of_query = (pc.field("stream_id") == query["stream_id"]) & (
        pc.field("predicate_id") == query["predicate_id"]
    )
    row_ids: list[int] = []
    # A piece holds the low 16 bits of the ids that match in one block of 65,536 rows.
    for piece in matches.to_table(filter=of_query).to_pylist():
        lows = BitMap.deserialize(piece["bitmap"])
        row_ids += [(piece["block"] << BLOCK_BITS) + low for low in lows]
    return f"stems/{query['stream_id']}", sorted(row_ids)


if __name__ == "__main__":
    for entry in catalogue(Path(sys.argv[1])):
        print(f"{entry['table']:<40} {entry['version']:>8}  {entry['stream']}")
