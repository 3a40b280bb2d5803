"""What one server has acknowledged, every other server of the store knows when it is asked.

Found by tests/system/test_oracle.py (seed 3): a query over a stream that another server had just
created was refused with NOT_FOUND, because only the tail of the log knew the stream.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.system.processes import RunningStore

pytestmark = pytest.mark.process

ROUNDS = 25


def test_a_stream_a_query_and_rows_of_another_server_are_known(tmp_path: Path) -> None:
    with RunningStore(tmp_path) as store:
        store.start_server()
        store.start_server()
        with store.client(0) as first, store.client(1) as second:
            for number in range(ROUNDS):
                first.define(f"CREATE STREAM s{number} (a BIGINT)")
                query = second.register(f"SELECT a FROM s{number}")
                assert first.invoke(query, least_position=None).rows == []
                first.define(f"CREATE STREAM t{number} (a BIGINT)")
                assert second.publish(f"t{number}", [{"a": 1}]).row_count == 1
