"""The scripts' set-up on machines that lack something. Nothing is installed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import ROOT

TOOLS = ["bash", "cat", "cmp", "dirname", "head", "id", "mkdir", "mv", "rm", "sed"]


class Machine:
    """A PATH with the bare tools, and the programs that a test adds to it."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder
        for tool in TOOLS:
            place = shutil.which(tool)
            assert place is not None
            (self.bin / tool).symlink_to(place)

    def add(self, name: str, script: str) -> None:
        path = self.bin / name
        path.write_text(f"#!/bin/bash\n{script}\n")
        path.chmod(0o755)

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        helper = ROOT / "scripts" / "_env.sh"
        bare = "java_places() { :; }; apt_allowed() { false; }"
        return subprocess.run(
            ["bash", "-c", f'source "$1"; {bare}; {script}', "bash", str(helper)],
            env={"PATH": str(self.bin), "LC_ALL": "C"},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    folder = tmp_path / "a bin"
    folder.mkdir()
    return Machine(folder)


def java(version: str) -> str:
    return f"echo 'openjdk version \"{version}\" 2025-04-15' >&2"


def test_without_java_it_says_what_installs_it(machine: Machine) -> None:
    machine.add("apt-get", "exit 1")
    machine.add("apt-cache", "exit 0")
    done = machine.run("ensure_java; echo not reached")
    assert done.returncode == 1
    assert "sudo apt-get install -y openjdk-17-jre-headless" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.2"])
def test_an_old_java_is_no_java(machine: Machine, version: str) -> None:
    machine.add("java", java(version))
    assert machine.run("ensure_java").returncode == 1


@pytest.mark.parametrize("version", ["17.0.15", "21", "25-ea"])
def test_java_17_and_later_will_do(machine: Machine, version: str) -> None:
    machine.add("java", java(version))
    done = machine.run("ensure_java")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_java_home_that_is_too_old_gives_way_to_the_path(machine: Machine) -> None:
    machine.add("java", java("17.0.15"))
    done = machine.run('export JAVA_HOME=/nowhere; ensure_java; echo "${JAVA_HOME-none}"')
    assert done.stdout == "none\n"


def test_root_on_debian_is_not_asked(machine: Machine) -> None:
    installed = java("21.0.1").replace("'", "'\\''")
    machine.add("apt-cache", '[ "$2" = openjdk-21-jre-headless ]')
    machine.add(
        "apt-get",
        f"""[ "$1" = install ] || exit 0
echo "installing ${{*: -1}}"
printf '%s\\n' '#!/bin/bash' '{installed}' > "${{0%/*}}/java"
/bin/chmod +x "${{0%/*}}/java" """,
    )
    done = machine.run("apt_allowed() { true; }; ensure_java")
    assert done.returncode == 0, done.stderr
    assert "installing openjdk-21-jre-headless" in done.stderr


def test_without_python_it_says_so(machine: Machine) -> None:
    machine.add("python3", "exit 1")
    done = machine.run("find_python")
    assert done.returncode == 1
    assert "Python 3.11 or later was not found" in done.stderr


def test_a_ready_environment_is_left_alone(machine: Machine, tmp_path: Path) -> None:
    """The second start needs no pip, so no network."""
    root = tmp_path / "a clone"
    (root / ".venv" / "bin").mkdir(parents=True)
    (root / "pyproject.toml").write_text("[project]\n")
    (root / "constraints.txt").write_text("a==1\n")
    (root / "setup.py").write_text("setup()\n")
    core = root / "datastem" / "native" / "core.c"
    core.parent.mkdir(parents=True)
    core.write_text("int first;\n")
    python = root / ".venv" / "bin" / "python"
    python.write_text('#!/bin/bash\n[ "$1" = -c ]\n')
    python.chmod(0o755)
    paths = f'ROOT="{root}"; PYTHON="{python}"; STAMP="{root}/.venv/stamp"; VENV="{root}/.venv"'
    stamp = 'wanted_stamp >"$STAMP-engine"'
    for level in ("engine", "server"):
        first = machine.run(f"{paths}; {stamp}; ensure_python {level}")
        assert (first.returncode, first.stderr) == (0, "")

    for path in (root / "constraints.txt", core):
        before = path.read_text()
        path.write_text("changed\n")
        assert machine.run(f"{paths}; ensure_python server").returncode != 0
        # The failed attempt has removed the stamp.
        path.write_text(before)
        assert machine.run(f"{paths}; {stamp}; ensure_python server").returncode == 0

    # What needs the development tools is not content with Spark.
    assert machine.run(f"{paths}; {stamp}; python_ready dev").returncode == 1


def test_a_linked_environment_is_refused_and_left_as_it_is(
    machine: Machine, tmp_path: Path
) -> None:
    clone, elsewhere = tmp_path / "a clone", tmp_path / "another clone" / ".venv"
    clone.mkdir()
    elsewhere.mkdir(parents=True)
    (clone / ".venv").symlink_to(elsewhere)
    done = machine.run(
        f'ROOT="{clone}"; VENV="{clone}/.venv"; ensure_python server; echo not reached'
    )
    assert done.returncode == 1 and done.stdout == ""
    assert f"a link to {elsewhere}" in done.stderr and f"rm '{clone}/.venv'" in done.stderr
    assert not list(elsewhere.iterdir())


def test_every_script_parses_and_can_be_run() -> None:
    scripts = [path for path in (ROOT / "scripts").iterdir() if path.is_file()]
    for script in [*scripts, ROOT / ".ci" / "run"]:
        if script.suffix == ".py":
            compile(script.read_bytes(), script, "exec")
            continue
        subprocess.run(["bash", "-n", str(script)], check=True)
        assert script.name.startswith("_") or os.access(script, os.X_OK), script


def test_the_bill_of_materials_names_every_pin_and_every_jar() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "sbom.py"], capture_output=True, text=True, check=True
    )
    components = json.loads(done.stdout)["components"]
    versions = {component["name"]: component["version"] for component in components}
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert pins == {name: version for name, version in versions.items() if name in pins}
    hashes = {
        component["hashes"][0]["content"] for component in components if "hashes" in component
    }
    recorded = (ROOT / "psoup" / "engine" / "jars.sha256").read_text().splitlines()
    assert hashes == {line.split()[0] for line in recorded}
    assert len({component["bom-ref"] for component in components}) == len(components)


# ---- scripts/test

# What the script calls: ruff and the others do nothing, mypy and pytest say that they wait.
PROGRAMS = """
import os, signal, sys, time
from pathlib import Path
tool = sys.argv[2] if sys.argv[1] == "-m" else ""
if tool == "mypy":
    Path("mypy.pid").write_text(str(os.getpid()))
    if MYPY_FAILS:
        print("a.py:1: error: not an int", flush=True)
        sys.exit(1)
if tool == "pytest" and PYTEST_PASSES:
    sys.exit(0)
if tool in ("mypy", "pytest"):
    Path(tool + ".started").touch()
    try:
        time.sleep(600)
    except KeyboardInterrupt:
        sys.exit(2)
"""


class Gate:
    """A clone with the script alone."""

    def __init__(self, root: Path, **settings: bool) -> None:
        self.root = root
        scripts = root / "scripts"
        scripts.mkdir()
        shutil.copy(ROOT / "scripts" / "test", scripts / "test")
        shutil.copy(ROOT / "scripts" / "_env.sh", scripts / "real_env.sh")
        lines = ["ensure_python() { :; }", "ensure_java() { :; }", "ensure_jars() { :; }"]
        (scripts / "_env.sh").write_text(
            "\n".join(["source scripts/real_env.sh", f"PYTHON={root}/python", *lines, ""])
        )
        (root / "programs.py").write_text(
            "\n".join([*(f"{name} = {value}" for name, value in settings.items()), PROGRAMS])
        )
        self._write(root / "python", f'exec {sys.executable} {root}/programs.py "$@"')
        self._write(scripts / "proto", "exit 0")

    @staticmethod
    def _write(path: Path, script: str) -> None:
        path.write_text(f"#!/bin/bash\n{script}\n")
        path.chmod(0o755)

    def start(self) -> subprocess.Popen[str]:
        command = ["bash", "scripts/test"]
        return subprocess.Popen(
            command, cwd=self.root, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    def is_mypy_running(self) -> bool:
        return Path(f"/proc/{(self.root / 'mypy.pid').read_text()}").exists()


def test_mypy_ends_the_tests_if_it_fails(tmp_path: Path) -> None:
    process = Gate(tmp_path, MYPY_FAILS=True, PYTEST_PASSES=False).start()
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 1
    assert errors.endswith("a.py:1: error: not an int\npsoup: mypy failed\n")


def test_mypy_fails_the_gate_after_the_tests_have_passed(tmp_path: Path) -> None:
    process = Gate(tmp_path, MYPY_FAILS=True, PYTEST_PASSES=True).start()
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 1
    assert errors.endswith("a.py:1: error: not an int\npsoup: mypy failed\n")


def test_ctrl_c_ends_the_tests_and_mypy(tmp_path: Path) -> None:
    gate = Gate(tmp_path, MYPY_FAILS=False, PYTEST_PASSES=False)
    process = gate.start()
    while not all((tmp_path / f"{tool}.started").exists() for tool in ("mypy", "pytest")):
        assert process.poll() is None
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=240)
    assert process.returncode != 0
    while gate.is_mypy_running():
        time.sleep(0.01)
