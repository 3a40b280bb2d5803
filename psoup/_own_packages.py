"""The packages beside `psoup` that are installed with it.

Their names are common, so another distribution may install one of the same name: PyPI has a
`results`. Whichever is installed last overwrites files of the other, and what fails then is some
import far away. A file or folder of the user's may have such a name, too, and hide the package. So
`import psoup` looks first.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

_NAMES = ("client_sdk", "datastem", "querystem", "results")
_MARK = b"PSoup"


def check_own_packages() -> None:
    """Raise ImportError if a package is missing, or another file has its name."""
    for name in _NAMES:
        spec = find_spec(name)
        if spec is None or spec.origin is None:
            raise ImportError(
                f"the package {name!r} of PSoup is missing, as after another distribution of that "
                "name was uninstalled. Install PSoup again: pip install --force-reinstall psoup"
            )
        if _MARK not in Path(spec.origin).read_bytes():
            raise ImportError(
                f"PSoup has a package {name!r}, and {spec.origin} is another of that name. "
                + _advice(Path(spec.origin))
            )


def _advice(origin: Path) -> str:
    """Return what to do about a file that hides or has overwritten one of PSoup."""
    owner = _distribution_of(origin)
    if owner is None:
        return (
            "No distribution installed it: rename it, or start Python so that its folder is not on "
            "the path (another current folder, another script, PYTHONPATH)."
        )
    return (
        f"The distribution {owner} installed it. Uninstall that (pip uninstall {owner}), then "
        "install PSoup again (pip install --force-reinstall psoup), or give PSoup an environment "
        "of its own."
    )


def _distribution_of(origin: Path) -> str | None:
    """Return the name of the distribution, other than PSoup, that installed a file; None if there
    is none."""
    # Imported here: only a failure needs it.
    from importlib.metadata import distributions

    # A package is a folder with `__init__.py`; a module is a file.
    folder = origin.parents[1] if origin.stem == "__init__" else origin.parent
    for distribution in distributions(path=[str(folder)]):
        name = distribution.metadata["Name"]
        files = distribution.files or ()
        if name != "psoup" and any(folder / file == origin for file in files):
            return str(name)
    return None
