"""How the tests are dealt to several processes: by file, and in one hand what shares Spark.

The one Spark session and the one running store of a run are made in whichever process asks for
them, so everything that asks for them has to be in the same one.
"""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

SHARING_SPARK = ("tests/engine/", "tests/golden/", "tests/power/", "tests/system/")


class Dealing(LoadScopeScheduling):  # type: ignore[misc]
    def _split_scope(self, nodeid: str) -> str:
        return "spark" if nodeid.startswith(SHARING_SPARK) else nodeid.partition("::")[0]
