"""`format("psoup")` in a real Spark session, against a real server."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

from client_sdk import Client, Credentials
from psoup.spark import PsoupDataSource
from tests.server.identity.conftest import first_key
from tests.support.authority import Authority
from tests.support.docs.markdown import blocks, read
from tests.support.server.process import ServerProcess

pytestmark = [pytest.mark.process, pytest.mark.long]


@pytest.fixture
def session(spark: Any) -> Any:
    spark.dataSource.register(PsoupDataSource)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield spark
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def psoup(reader: Any, server: ServerProcess, tenant: str) -> Any:
    return reader.format("psoup").option("target", server.address).option("tenant", tenant)


def test_write_and_read(session: Any, shared_server: ServerProcess, tenant: str) -> None:
    with Client(shared_server.address, tenant=tenant) as client:
        client.define("CREATE STREAM s (k BIGINT, v TEXT, price DECIMAL(9, 2), at TIMESTAMP)")
        client.register("SELECT k, v FROM s WHERE k < 10", key="few")
        frame = session.range(0, 25_000, numPartitions=3).selectExpr(
            "id AS k",
            "concat('v', id) AS v",
            "CAST(id / 4 AS DECIMAL(9, 2)) AS price",
            "TIMESTAMP '2026-01-05 09:00:00Z' AS at",
        )
        psoup(frame.write, shared_server, tenant).option("stream", "s").mode("append").save()
        assert client.stream("s").row_count == 25_000
    stream = psoup(session.read, shared_server, tenant).option("stream", "s").load()
    assert stream.count() == 25_000
    assert stream.exceptAll(frame).count() == 0
    assert (
        stream.filter("k = 7 AND v = 'v7'").collect()[0]["price"]
        == frame.filter("k = 7").collect()[0]["price"]
    )
    few = psoup(session.read, shared_server, tenant).option("key", "few").load()
    assert sorted(row["k"] for row in few.collect()) == list(range(10))
    total = psoup(session.read, shared_server, tenant)
    answer = total.option("sql", "SELECT count(*) AS n FROM s").load().collect()
    assert [row["n"] for row in answer] == [25_000]


def test_a_stream_of_batches_once_through_restarts(
    session: Any, shared_server: ServerProcess, tenant: str, tmp_path: Path
) -> None:
    def begin(**options: str) -> Any:
        source = session.readStream.schema("k BIGINT").json(str(tmp_path / "in"))
        return (
            psoup(source.writeStream, shared_server, tenant)
            .option("stream", "s")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .options(**options)
            .trigger(availableNow=True)
            .start()
        )

    with Client(shared_server.address, tenant=tenant) as client:
        client.define("CREATE STREAM s (k BIGINT)")
        for turn in range(3):
            session.range(turn * 100, turn * 100 + 100).selectExpr("id AS k").write.mode(
                "append"
            ).json(str(tmp_path / "in"))
            begin().awaitTermination()
            # As if Spark had died after the commit of the store and before its own.
            commits = sorted((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=_number)
            if turn < 2:
                commits[-1].unlink()
                commits[-1].with_name(f".{commits[-1].name}.crc").unlink()
        assert sorted(row["k"] for row in client.ask("SELECT k FROM s")) == list(range(300))
        (publisher,) = client.publishers(prefix="spark/")
        # The query reads everything again without its checkpoint, and none of it is lost.
        shutil.rmtree(tmp_path / "checkpoint")
        begin().awaitTermination()
        again = client.ask("SELECT count(*) AS n, count(DISTINCT k) AS k FROM s")
        assert [dict(row) for row in again] == [{"n": 600, "k": 300}]
        first, second = (item.name for item in client.publishers(prefix="spark/"))
        assert publisher.name in (first, second)
        # With a publisher's name that another checkpoint has used, it fails instead.
        shutil.rmtree(tmp_path / "checkpoint")
        begin(publisher="mine").awaitTermination()
        shutil.rmtree(tmp_path / "checkpoint")
        with pytest.raises(StreamingQueryException, match="batches of another query"):
            begin(publisher="mine").awaitTermination()
        assert client.stream("s").row_count == 900


def _number(path: Path) -> int:
    return int(path.name)


def test_the_page_runs_as_written(
    session: Any, shared_server: ServerProcess, tenant: str, tmp_path: Path
) -> None:
    names: dict[str, Any] = {"spark": session}
    for block in blocks(read("docs/how-to/spark-jobs.md"), "python"):
        text = block.text.replace(
            'Client("localhost:7181")', f'Client("{shared_server.address}", tenant="{tenant}")'
        )
        text = text.replace(
            '.option("target", "localhost:7181")',
            f'.option("target", "{shared_server.address}").option("tenant", "{tenant}")',
        )
        # The JVM has a folder of its own.
        for folder in ("incoming", "checkpoint", "by-hand", "door-rows", "door-checkpoint"):
            text = text.replace(f'"{folder}"', f'"{tmp_path / folder}"')
        exec(text, names)


def test_a_store_that_asks_who_calls(session: Any, tmp_path: Path) -> None:
    """All four ways, each with executors that read the token and the certificate themselves."""
    authority = Authority(tmp_path / "pki")
    pair = authority.server()
    token = tmp_path / "token"
    token.write_text(first_key(tmp_path / "store", "operator"))
    server = ServerProcess(
        tmp_path / "store",
        *("--tls-cert", str(pair.cert), "--tls-key", str(pair.key), "--auth", "keys"),
    )
    options = {"target": server.address, "tls_ca": str(authority.ca), "token_file": str(token)}
    credentials = Credentials(token_file=token, ca=authority.ca)
    try:
        with Client(server.address, credentials=credentials) as client:
            for name in ("s", "t"):
                client.define(f"CREATE STREAM {name} (k BIGINT)")
        frame = session.range(50).selectExpr("id AS k")
        frame.write.format("psoup").options(**options, stream="s").mode("append").save()
        followed = session.readStream.format("psoup").options(**options, stream="s").load()
        query = followed.writeStream.format("psoup").options(**options, stream="t")
        query = query.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination()
        copied = session.read.format("psoup").options(**options, stream="t").load()
        assert sorted(row["k"] for row in copied.collect()) == list(range(50))
        wrong = "psk_0123456789abcdef_" + "planted" * 6 + "x"
        token.write_text(wrong)
        with pytest.raises(PySparkException, match="UNAUTHENTICATED|key") as refused:
            frame.write.format("psoup").options(**options, stream="s").mode("append").save()
        assert "planted" not in str(refused.value)
    finally:
        server.stop()
