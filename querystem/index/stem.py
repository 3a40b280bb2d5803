"""The query SteM: predicates are inserted, batches of rows probe them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from querystem.expressions import Expression
from querystem.index.bitmaps import positions
from querystem.index.formula import formula_of
from querystem.index.matches import Matches, gather
from querystem.index.nodes import Nodes
from querystem.index.probe import Probe
from querystem.index.rows import Rows
from querystem.kernel import Frame


class QueryStem:
    """All predicates over one stream.

    `probe` equals `kernel.matches` of each predicate by itself, but evaluates equal factors once,
    comparisons of one operand with many constants together, and nothing for a conjunction that
    has no row left. What `insert` and `remove` cost follows from the predicate alone.

    Not thread safe: nothing may change while a probe runs. Probes may run side by side.
    """

    def __init__(self) -> None:
        self._nodes = Nodes()
        self._roots = Rows(2)

    def __len__(self) -> int:
        return len(self._roots)

    def __contains__(self, predicate_id: int) -> bool:
        return predicate_id in self._roots

    def insert(self, predicate_id: int, where: Expression) -> None:
        """Raises ValueError where the id is here already."""
        if predicate_id in self._roots:
            raise ValueError(f"predicate {predicate_id} is already in the query SteM")
        self._roots.put(predicate_id, predicate_id, self._nodes.acquire(formula_of(where)))

    def remove(self, predicate_id: int) -> None:
        """Raises KeyError where the id is not here."""
        if predicate_id not in self._roots:
            raise KeyError(f"predicate {predicate_id} is not in the query SteM")
        root = self._roots.get(predicate_id)[1]
        self._roots.drop(predicate_id)
        self._nodes.release(root)

    def probe(self, batch: pa.RecordBatch | pa.Table) -> Matches:
        """Which rows of the batch satisfy which predicate."""
        table = self._roots.table
        table = table[np.argsort(table[:, 0])]
        probe = Probe(self._nodes, Frame(batch))
        pieces = []
        for rows in probe.slices():
            counts, offsets = positions(probe.lines(rows, table[:, 1]))
            pieces.append((counts, offsets + np.uint32(rows.start)))
        return gather(table[:, 0], pieces)

    def _check(self) -> None:
        """Asserts every invariant."""
        self._roots._check()
        self._nodes._check(self._roots.table[:, 1].tolist())
