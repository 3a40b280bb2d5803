"""The native core refuses buffers that contradict each other, also if the sanitiser watches."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from datastem import native
from tests.conftest import ROOT
from tests.support.native_fuzz import DAMAGES, run_fuzz

FOLDER = ROOT / "datastem" / "native"
FUZZ_CALLS = 200
SANITISED_CALLS = 3000


@pytest.fixture
def core() -> ModuleType:
    if native.core is None:
        pytest.skip("the native core was not built, or PSOUP_NATIVE is 0")
    return native.core


def _ints(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}i", *values)


def _longs(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}q", *values)


def _shorts(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}H", *values)


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("group", (_ints(1, 2), _ints(1)), "8 bytes of numbers and 4 of rows"),
        ("group", (b"123", b"123"), "3 bytes of numbers"),
        ("group", (_ints(1, -1), _ints(1, 2)), "negative"),
        ("search_runs", (_longs(1), _ints(0), _ints(1), _longs(5, 6)), "4 bytes of begins"),
        ("search_runs", (_longs(1), _ints(0), _ints(1, 1), _longs(5)), "begins"),
        ("search_runs", (b"1", _ints(0), _ints(0), _longs(5)), "begins"),
        ("search_runs", (_longs(1), _ints(-1), _ints(1), _longs(5)), "run 0 is not"),
        ("search_runs", (_longs(1), _ints(0), _ints(2), _longs(5)), "run 0 is not"),
        ("search_runs", (_longs(1, 2), _ints(0, 2), _ints(1, 1), _longs(5, 5)), "run 1 is not"),
        ("find_codes", (_longs(1), _ints(0, 1), 63, _longs(1)), "8 bytes of buckets by 1 bits"),
        ("find_codes", (_longs(1), _ints(0, 1, 1), 64, _longs(1)), "buckets"),
        ("find_codes", (_longs(1), _ints(0, 1, 1), 0, _longs(1)), "buckets"),
        ("find_codes", (_longs(1), _ints(0, 2, 1), 63, _longs(1)), "among the 1 codes"),
        ("find_codes", (_longs(1), _ints(-1, 1, 1), 63, _longs(1)), "among the 1 codes"),
        ("encode_lists", (b"1", b""), "8 bytes each"),
        ("encode_lists", (_longs(1), _shorts(1, 2)), "add up"),
        ("encode_lists", (_longs(3), _shorts(1, 2)), "add up"),
        ("encode_lists", (_longs(0, 2), _shorts(1, 2)), "add up"),
        ("encode_lists", (_longs(-1, 3), _shorts(1, 2)), "add up"),
        ("encode_lists", (_longs(2**63 - 1, 3), _shorts(1, 2)), "add up"),
        ("encode_lists", (_longs(2), _shorts(2, 2)), "ascend"),
        ("encode_lists", (_longs(65_537), _shorts(*range(65_536), 0)), "ascend"),
        ("encode_lines", (_longs(1), 0, _longs(0), 0), "no lines of 0 words"),
        ("encode_lines", (_longs(1), -1, _longs(0), 0), "no lines"),
        ("encode_lines", (_longs(1), 1025, _longs(0), 0), "no lines"),
        ("encode_lines", (_longs(1), 1, _longs(0), 1024), "no lines"),
        ("encode_lines", (_longs(1), 1, _longs(0), -1), "no lines"),
        ("encode_lines", (_longs(1, 1, 1), 2, _longs(0), 0), "no lines"),
        ("encode_lines", (_longs(1), 1, _longs(1), 0), "not in the matrix"),
        ("encode_lines", (_longs(1), 1, _longs(-1), 0), "not in the matrix"),
        ("encode_lines", (_longs(1, 0), 1, _longs(0, 1), 0), "no bits"),
    ],
)
def test_contradictions_are_refused(
    core: ModuleType, name: str, arguments: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        getattr(core, name)(*arguments)


M, V, F, B, D = native.MESSAGE, native.VARINT, native.FIXED64, native.BYTES, native.DECIMAL
NUMBER = (V, 8, 0, _longs(1, 2), None, None)


@pytest.mark.parametrize(
    ("fields", "rows", "message"),
    [
        ((NUMBER,), -1, "of -1 rows"),
        ((NUMBER,), 2**31, "rows"),
        ((NUMBER,), 3, "another number of rows"),
        (([NUMBER],), 2, "a tuple"),
        (((9, 8, 0, _longs(1, 2), None, None),), 2, "no such kind"),
        (((V, 128, 0, _longs(1, 2), None, None),), 2, "one byte"),
        (((V, 8, 0, None, None, None),), 2, "another number of rows"),
        (((V, 8, 0, _longs(1, 2), None, b"\1"),), 2, "mask"),
        ((NUMBER, (M, 10, 2, None, None, None)), 2, "nest"),
        ((NUMBER, (M, 10, -1, None, None, None)), 2, "nest"),
        ((NUMBER, (M, 10, 1, None, None, None), (M, 10, 1, None, None, None)), 2, "nest"),
        (tuple((M, 10, depth, None, None, None) for depth in range(9)), 2, "nest"),
        (((D, 10, 39, bytes(32), None, None),), 2, "scale"),
        (((D, 10, -1, bytes(32), None, None),), 2, "scale"),
        (((B, 10, 0, _ints(0, 1), b"ab", None),), 2, "another number of rows"),
        (((B, 10, 0, _ints(0, 2, 1), b"ab", None),), 2, "ascend"),
        (((B, 10, 0, _ints(-1, 0, 2), b"ab", None),), 2, "range"),
        (((B, 10, 0, _ints(0, 1, 3), b"ab", None),), 2, "range"),
        (((B, 10, 0, _ints(0, 0, 1), None, None),), 2, "range"),
    ],
)
def test_fields_that_contradict_are_refused(
    core: ModuleType, fields: tuple[Any, ...], rows: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        core.encode_fields(fields, rows)


def test_fuzz(core: ModuleType) -> None:
    assert run_fuzz(core, seed=0, count=FUZZ_CALLS) > FUZZ_CALLS * DAMAGES // 4


def test_a_variable_turns_it_off() -> None:
    script = "from datastem import native; print(native.core)"
    environment = {**os.environ, "PSOUP_NATIVE": "0", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "None\n"


@pytest.mark.long
def test_fuzz_under_the_address_sanitiser(tmp_path: Path) -> None:
    compiler = shutil.which("gcc")
    include = sysconfig.get_path("include")
    if compiler is None or not (Path(include) / "Python.h").exists():
        pytest.skip("needs gcc and the headers of Python")
    library = subprocess.run(
        [compiler, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    ).stdout.strip()
    if not Path(library).is_absolute():
        pytest.skip("gcc has no address sanitiser")
    core = tmp_path / "_core.abi3.so"
    checks = [
        "-fsanitize=address,undefined",
        "-fno-sanitize=alignment",
        "-fno-sanitize-recover=all",
    ]
    flags = ["-shared", "-fPIC", "-g", "-O1", "-Wall", "-Werror", "-DPy_LIMITED_API=0x030B0000"]
    sources = sorted(map(str, FOLDER.glob("*.c")))
    subprocess.run(
        [compiler, *flags, *checks, f"-I{include}", *sources, "-o", str(core)], check=True
    )
    environment = {
        **os.environ,
        "LD_PRELOAD": library,
        # Python frees little when it ends; its small objects must be seen as well.
        "ASAN_OPTIONS": "detect_leaks=0",
        "PYTHONMALLOC": "malloc",
        "PSOUP_NATIVE": "0",
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-m", "tests.support.native_fuzz", str(core), "1"]
    done = subprocess.run(
        [*command, str(SANITISED_CALLS)], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert int(done.stdout) > SANITISED_CALLS * DAMAGES // 4
