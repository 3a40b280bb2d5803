"""Set-up at the start of every process of a tortured store, before any other code.

Writes of the process are recorded for power cuts. Files in the folder that PSOUP_TORTURE_SWITCHES
names switch faults on: with `full-disk` no file is made; with `own-conflict` some links are made
and reported as FileExistsError; with `stalled-link-PID` the links of that process wait for its end.
"""

import errno
import os
import random
import time
from typing import Any

from tests.power import recorder

_SWITCHES = os.environ["PSOUP_TORTURE_SWITCHES"]
_MISREPORTED_SHARE = 0.3


def _is_on(switch: str) -> bool:
    return os.path.exists(os.path.join(_SWITCHES, switch))


def _refuse_if_full() -> None:
    if _is_on("full-disk"):
        raise OSError(errno.ENOSPC, "No space left on device")


def _obey_switches() -> None:
    import pyarrow.parquet as pq

    link, make = os.link, pq.ParquetWriter.__init__

    def faulty_link(*arguments: Any, **options: Any) -> None:
        _refuse_if_full()
        while _is_on(f"stalled-link-{os.getpid()}"):
            time.sleep(0.02)
        link(*arguments, **options)
        if _is_on("own-conflict") and random.random() < _MISREPORTED_SHARE:
            raise FileExistsError(errno.EEXIST, "injected after the link was made")

    def checked_make(*arguments: Any, **options: Any) -> None:
        _refuse_if_full()
        make(*arguments, **options)

    os.link = faulty_link
    pq.ParquetWriter.__init__ = checked_make


recorder.install()
_obey_switches()
