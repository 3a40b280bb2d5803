"""`import psoup` names a distribution that has overwritten one of its packages."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("client_sdk", "datastem", "querystem", "results")
FOREIGN = "raise RuntimeError('must not be run')\n"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with the first file of each package, as if they were installed there."""
    shutil.copytree(
        ROOT / "psoup",
        tmp_path / "psoup",
        ignore=lambda folder, names: [name for name in names if (Path(folder) / name).is_dir()],
    )
    for name in PACKAGES:
        (tmp_path / name).mkdir()
        shutil.copy(ROOT / name / "__init__.py", tmp_path / name)
    return tmp_path


def import_psoup(*path: Path) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-I",
        "-S",
        "-c",
        f"import sys; sys.path[:0] = {[str(folder) for folder in path]!r}; import psoup",
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_own_packages_pass(site: Path) -> None:
    done = import_psoup(site)
    assert (done.returncode, done.stderr) == (0, "")


def test_one_of_another_distribution_is_named(site: Path) -> None:
    (site / "results" / "__init__.py").write_text(FOREIGN)
    # The file is in the lists of both.
    for name in ("psoup", "other-results"):
        (metadata := site / f"{name.replace('-', '_')}-1.dist-info").mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        (metadata / "RECORD").write_text("results/__init__.py,,\n")
    done = import_psoup(site)
    assert done.returncode == 1
    assert "'results'" in done.stderr and "The distribution other-results" in done.stderr
    assert "pip uninstall other-results" in done.stderr and "must not be run" not in done.stderr


@pytest.mark.parametrize("name", ["results.py", "results/__init__.py"])
def test_a_file_of_the_user_that_hides_one_is_named(site: Path, tmp_path: Path, name: str) -> None:
    """As one beside the script that imports PSoup."""
    folder = tmp_path / "project"
    (folder / name).parent.mkdir(parents=True)
    (folder / name).write_text(FOREIGN)
    done = import_psoup(folder, site)
    assert done.returncode == 1
    assert str(folder / name) in done.stderr and "must not be run" not in done.stderr
    assert "rename it" in done.stderr and "uninstall" not in done.stderr


def test_one_that_is_missing_is_named(site: Path) -> None:
    """`pip uninstall results` leaves the folder with those files that only PSoup has."""
    (site / "querystem" / "__init__.py").unlink()
    for _ in range(2):
        done = import_psoup(site)
        assert "'querystem' of PSoup is missing" in done.stderr
        assert "--force-reinstall" in done.stderr
        shutil.rmtree(site / "querystem", ignore_errors=True)
