"""The log of a Delta table, read as far as a source needs it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs

from psoup.source.errors import BadSettings, PlaceLost, SourceAway

# Features that change what a data file means.
_REFUSED_FEATURES = frozenset({"deletionVectors", "columnMapping"})


@dataclass(frozen=True, slots=True)
class Version:
    """One commit: the files that it added with new rows, and whether it removed or changed any.

    A commit that only rewrites files, as OPTIMIZE does, adds and removes nothing.
    """

    number: int
    operation: str
    added: list[Mapping[str, Any]]
    removed: bool
    has_data: bool
    changes_schema: bool


class DeltaLog:
    """A table's commits and files. Raises SourceAway if it can't be reached."""

    def __init__(self, uri: str, options: dict[str, str] | None = None) -> None:
        self._uri, self._options = uri, options
        self.reload()

    def reload(self) -> None:
        """Read the table's description again."""
        module = delta_module()
        try:
            self._table = module.DeltaTable(self._uri, storage_options=self._options)
        except (OSError, module.exceptions.DeltaError) as error:
            raise SourceAway(f"table {self._uri}: {_short(error)}") from None
        self.table_id = str(self._table.metadata().id)
        protocol = self._table.protocol()
        features = set(protocol.reader_features or ()) & _REFUSED_FEATURES
        if features:
            raise BadSettings(f"table {self._uri} uses {', '.join(sorted(features))}")
        from deltalake.fs import DeltaStorageHandler

        handler = DeltaStorageHandler.from_table(self._table._table)
        self._files = pa.fs.PyFileSystem(handler)
        self._partitions = self._table.metadata().partition_columns
        self._types = {
            field.name: field.type for field in pa.schema(self._table.schema().to_arrow())
        }

    def latest(self) -> int:
        """Return the newest version."""
        module = delta_module()
        try:
            self._table.update_incremental()
        except (OSError, module.exceptions.DeltaError) as error:
            raise SourceAway(f"table {self._uri}: {_short(error)}") from None
        return int(self._table.version())

    def has(self, version: int) -> bool:
        """Return whether a version is committed. Raises PlaceLost if only its log entry is gone."""
        info = self._files.get_file_info(_commit_path(version))
        if info.type == pa.fs.FileType.File:
            return True
        if self.latest() >= version:
            raise PlaceLost(
                f"version {version} of {self._uri} is needed, and its log entry was removed; "
                "read the table again with skip --to earliest, or go on with skip --to latest"
            )
        return False

    def version(self, number: int) -> Version:
        """Return a commit. Raises PlaceLost if a file of it is gone."""
        with self._files.open_input_stream(_commit_path(number)) as source:
            lines = source.read().splitlines()
        actions = [json.loads(line) for line in lines if line.strip()]
        adds = [action["add"] for action in actions if "add" in action]
        removes = [action["remove"] for action in actions if "remove" in action]
        changes = any("cdc" in action for action in actions)
        info: Mapping[str, Any] = next((a["commitInfo"] for a in actions if "commitInfo" in a), {})
        added = [add for add in adds if add.get("dataChange", True)]
        removed = any(remove.get("dataChange", True) for remove in removes)
        return Version(
            number,
            str(info.get("operation", "a commit")),
            added,
            removed,
            bool(added) or removed or changes,
            any("metaData" in action for action in actions),
        )

    def files(self, version: int) -> list[Mapping[str, Any]]:
        """Return the files of the table at a version, in the order of their names."""
        module = delta_module()
        try:
            table = module.DeltaTable(self._uri, version, storage_options=self._options)
        except (OSError, module.exceptions.DeltaError) as error:
            raise PlaceLost(f"version {version} of {self._uri}: {_short(error)}") from None
        actions = pa.table(table.get_add_actions()).to_pylist()
        files = [
            {"path": row["path"], "partitionValues": row.get("partition") or {}} for row in actions
        ]
        return sorted(files, key=lambda file: str(file["path"]))

    def open(self, path: str) -> Any:
        """Return a data file. Raises PlaceLost if it was vacuumed."""
        try:
            return self._files.open_input_file(unquote(path))
        except FileNotFoundError:
            raise PlaceLost(
                f"{path} of {self._uri} is needed, and was vacuumed; read the table again with "
                "skip --to earliest, or go on with skip --to latest"
            ) from None

    def with_partition(self, batch: pa.RecordBatch, values: Mapping[str, Any]) -> pa.RecordBatch:
        """Return rows of a file with the columns that only its partition has."""
        for name in self._partitions:
            value = values.get(name)
            type_ = self._types[name]
            text = pa.scalar(None if value in (None, "") else str(value), pa.string())
            array = pa.array([text.as_py()] * batch.num_rows, pa.string()).cast(type_)
            batch = batch.append_column(name, array)
        return batch

    def changes(self, version: int) -> pa.Table:
        """Return the change feed of a version."""
        module = delta_module()
        try:
            reader = self._table.load_cdf(starting_version=version, ending_version=version)
            return _without_views(pa.RecordBatchReader.from_stream(reader).read_all())
        except (OSError, module.exceptions.DeltaError) as error:
            raise PlaceLost(
                f"the change feed of version {version} of {self._uri} can't be read: "
                f"{_short(error)}; the table needs delta.enableChangeDataFeed"
            ) from None


def _without_views(table: pa.Table) -> pa.Table:
    """Return the table without string views, which few functions of Arrow take."""
    types = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    fields = [field.with_type(types.get(field.type, field.type)) for field in table.schema]
    return table.cast(pa.schema(fields))


def delta_module() -> Any:
    """Return the module `deltalake`. Raises BadSettings, which says what to install."""
    try:
        import deltalake
        import deltalake.exceptions
    except ImportError:
        raise BadSettings("Delta tables need: pip install 'psoup[delta]'") from None
    return deltalake


def _commit_path(version: int) -> str:
    return f"_delta_log/{version:020}.json"


def _short(error: Exception) -> str:
    return str(error).splitlines()[0][:300]
