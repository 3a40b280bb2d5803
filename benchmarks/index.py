"""Index: how long a worker takes until it can match 100,000 predicates, by kind of template.

Everything is processor time. "One by one" parses each predicate by itself; it is measured with
fewer predicates, and scaled. "Mapped" is an index that another worker of the machine has built.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.index_queries import FAMILIES, rows, texts
from benchmarks.report import Report
from psoup.engine.matching.index_cache import IndexCache
from querystem.expressions import from_json
from querystem.index import QueryStem

PREDICATES = 100_000
PARSED = 2_000
PROBED_ROWS = 1_000
AIM_SECONDS = 0.5


def run(folder: Path, quick: bool) -> Report:
    count = PREDICATES // 10 if quick else PREDICATES
    report = Report("index", f"{count:,} predicates, in seconds for 100,000, processor time")
    # What is loaded at the first use is no part of a template's time.
    _built(texts(FAMILIES["two intervals"], PARSED))
    for name, make in FAMILIES.items():
        stored = texts(make, count)
        seconds, stem = _built(stored)
        scaled = seconds * PREDICATES / count
        parsed = _parsed(stored.slice(0, PARSED)) * PREDICATES / PARSED
        report.add(
            f"{name}: built from texts",
            scaled,
            "s",
            ratio=parsed / scaled,
            beside="less than one by one",
            aim=f"≤ {AIM_SECONDS} s",
            met=scaled <= AIM_SECONDS,
        )
        report.add(f"  one by one: {name}", parsed, "s")
        _add_mapped(report, IndexCache(folder, folder / "indexes"), name, stem)
        start = time.process_time()
        stem.probe(rows(PROBED_ROWS))
        report.add(f"  first probe: {name}", (time.process_time() - start) * 1e3, "ms")
    return report


def _add_mapped(report: Report, cache: IndexCache, name: str, stem: QueryStem) -> None:
    """Report how long an index takes out of the cache, and how large its file is."""
    cache.store(0, name, stem)
    start = time.process_time()
    mapped = cache.load(0, name)
    seconds = time.process_time() - start
    if mapped is None:
        report.add(f"  mapped: {name} (not cached)", 0, "ms")
        return
    assert len(mapped) == len(stem)
    report.add(f"  mapped: {name}", 1000 * seconds, "ms")
    size = sum(path.stat().st_size for path in cache.open_folder().iterdir())
    report.add(f"  its file: {name}", size / 2**20, "MiB")


def _built(stored: pa.Array) -> tuple[float, QueryStem]:
    start, stem = time.process_time(), QueryStem()
    stem.insert_texts(np.arange(len(stored)), stored)
    return time.process_time() - start, stem


def _parsed(stored: pa.Array) -> float:
    start, stem = time.process_time(), QueryStem()
    for predicate_id, text in enumerate(stored.to_pylist()):
        stem.insert(predicate_id, from_json(json.loads(text)))
    return time.process_time() - start
