"""Checks of the repository as a whole."""

from __future__ import annotations

import ast
import hashlib
import os
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.conftest import ROOT

PACKAGES = ["psoup", "querystem", "datastem", "results", "client_sdk"]

# Old clients must understand new servers. Before changing this: fields and methods are only ever
# added, numbers are never reused, and CHANGELOG.md says what is new.
WIRE = "24815b3615fae639a382ebae55bf89359ed39d1020df08659d199a2f7cc1a852"

# Split, so that this file does not find itself.
PRIVATE = {
    "a path of one machine": r"(?<![\w.~-])/(?:wo" r"rk|ho" r"me|ro" r"ot|Us" r"ers)/",
    "a package mirror": r"(?i)pythonho" r"sted|artifac" r"tory|--(?:extra-)?index-" r"url",
    "an unfinished merge": r"(?m)^(?:<<<<" r"<<<|>>>>" r">>>) ",
}


def _files() -> list[Path]:
    """Return everything that is tracked, or would be if it were added."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("needs a git checkout")
    paths = (ROOT / os.fsdecode(name) for name in listed.stdout.split(b"\0") if name)
    return [path for path in paths if path.is_file()]


@pytest.mark.parametrize("what", PRIVATE)
def test_no_file_speaks_of_the_machine_it_was_written_on(what: str) -> None:
    problems = []
    for path in _files():
        text = path.read_text(encoding="utf-8", errors="replace")
        for match in re.finditer(PRIVATE[what], text):
            line = text.count("\n", 0, match.start()) + 1
            problems.append(f"{path.relative_to(ROOT)}:{line}: {match.group()!r} is {what}")
    assert not problems, "\n".join(problems)


def test_constraints_are_plain_versions() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    odd = [line for line in lines if not re.fullmatch(r"#.*|[\w.-]+==[\w.!+]+", line)]
    assert not odd


def test_the_user_s_choice_of_packages_is_pinned() -> None:
    text = (ROOT / "constraints.txt").read_text().lower().replace("_", "-")
    pinned = {line.partition("==")[0] for line in text.splitlines() if not line.startswith("#")}
    chosen = {"pyspark", "delta-spark", "intervaltree", "grpcio", "protobuf", "pytest"}
    assert chosen <= pinned


def test_the_base_needs_neither_spark_nor_delta() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {re.split(r"[^\w-]", line)[0] for line in project["dependencies"]}
    assert not names & {"pyspark", "delta-spark", "deltalake", "numpy", "pandas"}


def test_servers_need_intervaltree_and_clients_do_not() -> None:
    """Blocks by time and watches are searched with it."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    needing = {
        name
        for name, lines in extras.items()
        if any(re.split(r"[^\w-]", line)[0] == "intervaltree" for line in lines)
    }
    assert needing == {"server"} and "psoup[server]" in extras["engine"]
    assert "intervaltree" in _without("intervaltree", "psoup.server.core")
    assert not _without("intervaltree", "client_sdk.copies", "client_sdk.copies._query.compute")


def test_every_extra_is_tried_and_documented() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    # For working on PSoup, from a clone.
    extras = project["optional-dependencies"].keys() - {"benchmarks", "dev", "docs"}
    tried = runpy.run_path(str(ROOT / "scripts" / "wheels.py"))["EXTRAS"].keys() - {"base"}
    install = (ROOT / "docs" / "operations.md").read_text().partition("## Install")[2]
    documented = re.findall(r"^\| `pip install 'psoup\[(\w+)\]'`", install, re.M)
    assert tried == extras
    assert sorted(documented) == sorted(extras)


def _without(package: str, *modules: str) -> str:
    """Return the standard error of a process that imports modules without a package."""
    lines = [f"import sys; sys.modules[{package!r}] = None", *map("import {}".format, modules)]
    command = [sys.executable, "-c", "\n".join(lines)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stderr


def test_the_wire_is_the_one_that_was_agreed() -> None:
    text = "".join(path.read_text() for path in sorted((ROOT / "proto").rglob("*.proto")))
    meaning = " ".join(re.sub(r"//[^\n]*", "", text).split())
    assert hashlib.sha256(meaning.encode()).hexdigest() == WIRE, "the wire has changed; see WIRE"


def test_every_module_says_what_it_is_for() -> None:
    modules = [path for name in PACKAGES for path in (ROOT / name).rglob("*.py")]
    plain = [p for p in modules if "_pb2" not in p.name and p.name != "__main__.py"]
    silent = [str(p.relative_to(ROOT)) for p in plain if not ast.get_docstring(_parsed(p))]
    assert not silent


def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def test_a_public_class_name_means_one_thing() -> None:
    """In the store's own packages; public names of the SDK may coincide with them."""
    paths_by_class: dict[str, list[str]] = {}
    for name in PACKAGES:
        for path in (ROOT / name).rglob("*.py") if name != "client_sdk" else ():
            if "_pb2" not in path.name:
                for node in _parsed(path).body:
                    if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                        paths_by_class.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    twice = {name: sorted(paths) for name, paths in paths_by_class.items() if len(paths) > 1}
    # An expression calls a function, a client calls a server: both words are of the trade.
    twice.pop("Call")
    assert twice == {}


def test_every_folder_of_tests_is_a_package() -> None:
    """Otherwise tests/results would hide results."""
    folders = {path.parent for path in (ROOT / "tests").rglob("*.py")}
    assert [f for f in folders if not (f / "__init__.py").is_file()] == []
