"""Random calls of the native core: right ones give what numpy gives, damaged ones raise ValueError.

`python -m tests.support.native_fuzz CORE SEED COUNT` runs them with the core in that file, which
the address sanitiser may watch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa

from datastem import native
from psoup.server.wire import fields as wire
from querystem.index.regroup import regroup
from results import bitmaps

Random = np.random.Generator
DAMAGES = 10
# The arguments of a call of the core, and what it must return.
Case = tuple[str, tuple[Any, ...], Any]
# Sizes on both sides of what the functions tell apart.
_COUNTS = [0, 1, 2, 3, 7, 64, 300]
_SET_SIZES = [1, 2, 3, 50, 4095, 4096, 4097, 30_000]
_EXTREMES = [0, 1, -1, 2**15, 2**31 - 1, -(2**31), 2**32, 2**62, -(2**63), 2**63 - 1]


def load_core(path: str) -> ModuleType:
    """Return the core in a file."""
    loader = ExtensionFileLoader("datastem.native._core", path)
    spec = spec_from_file_location("datastem.native._core", path, loader=loader)
    assert spec is not None
    core = module_from_spec(spec)
    loader.exec_module(core)
    return core


def run_fuzz(core: ModuleType, seed: int, count: int) -> int:
    """Make so many calls, each of them also damaged in DAMAGES ways; return how many damaged ones
    were refused."""
    random = np.random.default_rng(seed)
    refused = 0
    for _ in range(count):
        name, arguments, expected = _CASES[random.integers(len(_CASES))](random)
        function = getattr(core, name)
        result = function(*arguments)
        if _plain(name, result) != expected:
            raise AssertionError(f"{name}{arguments!r} gave {result!r}, not {expected!r}")
        for _ in range(DAMAGES):
            try:
                function(*_damaged(random, arguments))
            except (ValueError, OverflowError, TypeError):
                refused += 1
    return refused


def _plain(name: str, result: Any) -> Any:
    if isinstance(result, bytearray):
        return bytes(result)
    if name != "encode_fields":
        return tuple(map(bytes, result))
    content, start, offsets = result
    return bytes(content[start:]), bytes(offsets)


# ---- right calls


def _group(random: Random) -> Case:
    count = int(random.choice(_COUNTS))
    numbers = random.integers(0, random.choice([1, 5, 400, 2**21, 2**31]), count).astype(np.int32)
    rows = random.integers(-(2**31), 2**31, count).astype(np.int32)
    groups = _by_numpy(lambda: regroup(numbers, rows))
    expected = groups.numbers.tobytes(), groups.counts.tobytes(), groups.rows.tobytes()
    return "group", (numbers, rows), expected


def _runs(random: Random) -> Case:
    count = int(random.choice(_COUNTS))
    bounds = np.sort(
        random.choice([-(2**63), -7, 0, 1, 2**40, 2**63 - 1], int(random.choice(_COUNTS)))
    )
    edges = np.sort(random.integers(0, len(bounds) + 1, (count, 2)), axis=1).astype(np.int32)
    begins, ends = edges[:, 0].copy(), edges[:, 1].copy()
    keys = random.choice([-(2**63), -8, 0, 2**40 - 1, 2**63 - 1], count)
    expected = [
        begin + np.searchsorted(bounds[begin:end], key, "right")
        for begin, end, key in zip(begins, ends, keys, strict=True)
    ]
    return "search_runs", (bounds, begins, ends, keys), np.array(expected, np.int32).tobytes()


def _codes(random: Random) -> Case:
    size = int(random.choice(_COUNTS[1:]))
    most = int(random.choice([2**20, 2**63]))
    codes = np.unique(random.integers(0, most, size).astype(np.uint64) * np.uint64(2))
    bits = min(len(codes).bit_length() + 1, 32)
    edges = np.arange(2**bits + 1, dtype=np.uint64)
    buckets = np.searchsorted(codes >> np.uint64(64 - bits), edges).astype(np.int32)
    wanted = random.choice(codes, int(random.choice(_COUNTS)))
    wanted += random.integers(0, 2, len(wanted)).astype(np.uint64)
    is_here = np.isin(wanted, codes)
    places = np.where(is_here, np.searchsorted(codes, wanted), -1).astype(np.int32)
    return "find_codes", (codes, buckets, 64 - bits, wanted), places.tobytes()


def _set(random: Random, limit: int) -> np.ndarray:
    """Members below a limit: at random, or a few runs."""
    size = min(int(random.choice(_SET_SIZES)), limit)
    if random.integers(2):
        return np.sort(random.choice(limit, size, replace=False)).astype(np.uint16)
    begins = random.integers(0, limit, random.integers(1, 9))
    runs = [np.arange(begin, min(begin + size, limit)) for begin in begins]
    return np.unique(np.concatenate(runs)).astype(np.uint16)


def _binary(sets: list[np.ndarray]) -> tuple[bytes, bytes]:
    encoded = [bitmaps.encode(members) for members in sets]
    offsets = np.append(0, np.cumsum([len(content) for content in encoded])).astype(np.int32)
    return offsets.tobytes(), b"".join(encoded)


def _lists(random: Random) -> Case:
    sets = [_set(random, 65_536) for _ in range(random.integers(5))]
    counts = np.array([len(members) for members in sets], np.int64)
    members = np.concatenate([np.empty(0, np.uint16), *sets])
    return "encode_lists", (counts, members), _binary(sets)


def _lines(random: Random) -> Case:
    width = int(random.choice([1, 2, 16, 1023, 1024]))
    first = int(random.integers(0, 1024 - width + 1))
    sets = [_set(random, 64 * width) for _ in range(random.integers(1, 5))]
    bits = np.zeros((len(sets), 64 * width), np.bool_)
    for line, members in enumerate(sets):
        bits[line, members] = True
    words = np.packbits(bits, axis=1, bitorder="little").view(np.uint64)
    lines = random.integers(0, len(sets), random.integers(6))
    expected = _binary([sets[line] + np.uint16(64 * first) for line in lines.tolist()])
    return "encode_lines", (words, width, lines, first), expected


def _fields(random: Random) -> Case:
    rows = int(random.choice(_COUNTS[1:]))
    tree = [wire.MessageField(1, [_field(random, rows, 3) for _ in range(random.integers(1, 5))])]
    arguments = tuple(item for field in tree for item in wire._native(field))
    content, places = _by_numpy(lambda: wire.encode_fields(tree, rows))
    return "encode_fields", (arguments, rows), (bytes(content), places.tobytes())


def _field(random: Random, rows: int, depth: int) -> wire.Field:
    number = int(random.integers(1, 16))
    present = random.integers(0, 2, rows).astype(np.bool_) if random.integers(2) else None
    match random.integers(5 if depth else 4):
        case 0:
            bits = random.integers(0, 64, rows).astype(np.uint64)
            values = (random.integers(0, 2**63, rows).astype(np.uint64) >> bits).view(np.int64)
            return wire.NumberField(number, values * random.choice([-1, 1], rows), present)
        case 1:
            return wire.FixedField(number, random.random(rows), present)
        case 2:
            sizes = random.choice([0, 1, 127, 128, 300], rows)
            texts = pa.array([random.bytes(size) for size in sizes], pa.binary())
            # Texts of rows that have none must be empty: the numpy path joins what there is.
            return wire.TextField(number, texts, texts.is_valid().to_numpy(zero_copy_only=False))
        case 3:
            scale = int(random.integers(0, 39))
            high = random.integers(-(10**19) // 2**64 - 4, 4, rows)
            octets = np.stack([random.integers(0, 2**63, rows), high], axis=1)
            content = pa.py_buffer(octets.astype(np.int64).tobytes())
            type_ = pa.decimal128(38, scale)
            decimals = pa.Array.from_buffers(type_, rows, [None, content])
            return wire.DecimalField(number, decimals)
    inside = [_field(random, rows, depth - 1) for _ in range(random.integers(1, 4))]
    return wire.MessageField(number, inside)


def _by_numpy(call: Callable[[], Any]) -> Any:
    core, native.core = native.core, None
    try:
        return call()
    finally:
        native.core = core


_CASES: list[Callable[[Random], Case]] = [_group, _lists, _lines, _fields, _runs, _codes]


# ---- damaged calls


def _damaged(random: Random, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments with one of them changed, or a part of one."""
    if not arguments:
        return arguments
    changed = list(arguments)
    place = random.integers(len(changed))
    changed[place] = _damage(random, changed[place])
    return tuple(changed)


def _damage(random: Random, value: Any) -> Any:
    match value:
        case tuple():
            return _damaged(random, value) if random.integers(4) else value[:-1]
        case int():
            return int(random.choice(_EXTREMES)) if random.integers(2) else value + 1
        case None:
            return random.bytes(int(random.integers(0, 50)))
    content = bytearray(value)
    match random.integers(4):
        case 0:
            return content[: random.integers(0, len(content) + 1)]
        case 1:
            return content + random.bytes(int(random.integers(0, 20)))
        case 2:
            return None
    # Some of its bytes become others; without bytes there are none.
    for _ in range(random.integers(1, 5) if content else 0):
        content[random.integers(len(content))] = int(random.choice([0, 1, 127, 128, 255]))
    return content


if __name__ == "__main__":
    path, seed, count = sys.argv[1:]
    print(run_fuzz(load_core(path), int(seed), int(count)))
