"""Runs at the start of every process of a tortured store, before any of its own code.

What the process writes is recorded for power cuts. While the file named by PSOUP_TORTURE_FULL_DISK
is there, the disk is full: no file is made.
"""

import errno
import os
from typing import Any

from tests.power import recorder

_FULL = os.environ["PSOUP_TORTURE_FULL_DISK"]


def _refuse_where_full() -> None:
    if os.path.exists(_FULL):
        raise OSError(errno.ENOSPC, "No space left on device")


def _fill_disk_when_told() -> None:
    import pyarrow.parquet as pq

    link, make = os.link, pq.ParquetWriter.__init__

    def checked_link(*given: Any, **options: Any) -> None:
        _refuse_where_full()
        link(*given, **options)

    def checked_make(*given: Any, **options: Any) -> None:
        _refuse_where_full()
        make(*given, **options)

    os.link = checked_link
    pq.ParquetWriter.__init__ = checked_make


recorder.install()
_fill_disk_when_told()
