"""A Delta table: each write is one commit that overwrites it, schema and all.

No other module of the SDK loads `deltalake`, which is not part of the base install. Older versions
stay readable until they are vacuumed, which is left to the table's owner.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from client_sdk.pulls._sinks.files import Output, Stamp


class DeltaSink:
    """A sink for a Delta table. Raises ImportError, which says what to install, without
    `deltalake`.
    """

    def __init__(self, path: Path) -> None:
        self._path = path.resolve()
        self._delta = delta_module()
        self.failures: tuple[type[Exception], ...] = (
            OSError,
            self._delta.exceptions.DeltaError,
        )

    def write(self, output: Output) -> None:
        # All at once: the writer takes batches in threads of its own, where a copy can't be read.
        table = pa.Table.from_batches(output.batches(), output.schema)
        about = {"psoup.pull": output.name, "psoup.position": output.position.hex()}
        self._delta.write_deltalake(
            str(self._path),
            table,
            mode="overwrite",
            schema_mode="overwrite",
            commit_properties=self._delta.CommitProperties(custom_metadata=about),
        )

    def stamp(self) -> Stamp | None:
        """Return the table's version; None if a file of it is missing."""
        if not self._delta.DeltaTable.is_deltatable(str(self._path)):
            return None
        table = self._delta.DeltaTable(str(self._path))
        if not all(Path(file).exists() for file in table.file_uris()):
            return None
        return [[table.version()]]

    def fingerprint(self) -> str | None:
        stamp = self.stamp()
        return None if stamp is None else f"version {stamp[0][0]}"


def delta_module() -> Any:
    """Return the module `deltalake`. Raises ImportError, which says what to install."""
    try:
        import deltalake
        import deltalake.exceptions
    except ImportError as error:
        raise ImportError(
            "a delta output needs the package deltalake: pip install 'deltalake>=1.6,<2'"
        ) from error
    return deltalake
