"""The packages beside `psoup` that are installed with it.

Their names are common, so another distribution may install one of the same name: PyPI has a
`results`. Whichever is installed last overwrites files of the other, and what fails then is some
import far away. So `import psoup` looks first.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

_NAMES = ("client_sdk", "datastem", "querystem", "results")
_MARK = b"PSoup"


def check_own_packages() -> None:
    """Raise ImportError if a package is missing, or belongs to another distribution."""
    for name in _NAMES:
        spec = find_spec(name)
        if spec is None or spec.origin is None:
            raise ImportError(
                f"the package {name!r} of PSoup is missing, as after another distribution of that "
                "name was uninstalled. Install PSoup again: pip install --force-reinstall psoup"
            )
        if _MARK not in Path(spec.origin).read_bytes():
            raise ImportError(
                f"the package {name!r} at {spec.origin} belongs to another distribution, and PSoup "
                f"has one of that name. Uninstall the other (pip uninstall {name}), then install "
                "PSoup again (pip install --force-reinstall psoup), or give PSoup an environment "
                "of its own."
            )
