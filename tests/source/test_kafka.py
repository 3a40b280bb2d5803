"""Kafka topics as sources, with a real broker."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from client_sdk import Client
from tests.source.conftest import Sources
from tests.support.server.process import ServerProcess
from tests.support.source.broker import KafkaBroker, kafka_broker

pytestmark = [pytest.mark.process, pytest.mark.long]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with kafka_broker(tmp_path_factory.mktemp("kafka") / "broker") as broker:
        yield broker


def source(broker: KafkaBroker, topic: str, stream: str, more: str = "") -> str:
    return (
        f'[sources.{topic}]\nkafka = {{ servers = "{broker.servers}", topic = "{topic}" }}\n'
        f'stream = "{stream}"\n{more}\n'
    )


def produce(broker: KafkaBroker, topic: str, partition: int, values: list[object]) -> None:
    producer = broker.producer()
    for value in values:
        content = value if isinstance(value, bytes) else json.dumps(value).encode()
        producer.produce(topic, content, partition=partition, headers={"region": b"eu"})
        producer.poll(0)
    assert producer.flush(60) == 0


def rows(client: Client, columns: str = "k", stream: str = "s") -> list[tuple[object, ...]]:
    try:
        answer = client.ask(f"SELECT {columns} FROM {stream} ORDER BY {columns}")
    except Exception:
        return []
    return [tuple(row.values()) for row in answer]


def test_messages_with_metadata_transactions_and_new_partitions(
    broker: KafkaBroker, sources: Sources
) -> None:
    broker.create_topic("t1")
    produce(broker, "t1", 0, [{"k": 1, "v": {"w": "a"}}, {"k": 2, "extra": 5}])
    aborted = broker.producer(transactional_id="x")
    deadline = time.monotonic() + 60
    while True:  # the coordinator is not there at first
        try:
            aborted.init_transactions(10)
            break
        except Exception:
            assert time.monotonic() < deadline
    aborted.begin_transaction()
    aborted.produce("t1", b'{"k": 99}', partition=0)
    aborted.abort_transaction()
    aborted.begin_transaction()
    aborted.produce("t1", b'{"k": 3}', partition=0)
    aborted.commit_transaction()
    sources.client.define(
        "CREATE STREAM s (k BIGINT, w TEXT, region TEXT, place BIGINT, at TIMESTAMP) ORDERED BY at"
    )
    columns = (
        'columns = { w = "v.w", region = "$headers.region", place = "$offset", at = "$timestamp" }'
    )
    sources.write(source(broker, "t1", "s", columns))
    check = sources.psoup("source", "check", str(sources.file))
    assert check.wait() == 0 and "eu" in check.text(), check.text()
    process = sources.start()
    expected = [(1, "a", "eu"), (2, None, "eu"), (3, None, None)]
    sources.wait_for(lambda: rows(sources.client, "k, w, region") == expected)
    # A message that does not fit stops the source before it; skip is the way on.
    produce(broker, "t1", 0, [{"k": 4}, {"k": "5"}, {"k": 6}])
    assert process.wait() == 1
    assert '"k": "5"' in process.text() and len(rows(sources.client)) == 4
    mark = process.text().split("the next mark is ")[1].splitlines()[0]
    skip = sources.psoup(
        "source", "skip", str(sources.file), "t1", "--partition", "t1/0", "--to", mark
    )
    assert skip.wait() == 0, skip.text()
    broker.add_partitions("t1", 2)
    produce(broker, "t1", 1, [{"k": 7}])
    process = sources.start()
    sources.wait_for(lambda: [row[0] for row in rows(sources.client)] == [1, 2, 3, 4, 6, 7])
    status = sources.psoup("source", "status", str(sources.file))
    assert status.wait() == 0 and "0 messages" in status.text(), status.text()
    # A topic that is made again is another topic.
    assert process.stop() == 143
    broker.delete_topic("t1")
    time.sleep(1.0)
    broker.create_topic("t1", 2)
    again = sources.start()
    assert again.wait() == 1 and "was made again" in again.text()


def test_keys_tombstones_aside_and_replay(broker: KafkaBroker, sources: Sources) -> None:
    broker.create_topic("t2")
    producer = broker.producer()
    for key, value in [(1, "a"), (2, "b"), (1, "c"), (3, "d")]:
        producer.produce("t2", json.dumps({"k": key, "v": value}), str(key))
    producer.produce("t2", None, "2")
    producer.produce("t2", b"\xff not JSON", "9")
    producer.produce("t2", b'{"k": 4, "v": 4.50}', "4")
    assert producer.flush(60) == 0
    sources.client.define("CREATE STREAM s (k BIGINT, v TEXT) KEY (k)")
    sources.client.define(
        "CREATE STREAM rejected (source TEXT, place TEXT, reason TEXT, message TEXT, raw TEXT, "
        "metadata TEXT)"
    )
    more = 'bad_rows = "aside"\naside = "rejected"\n'
    sources.write(source(broker, "t2", "s", more))
    process = sources.start()
    sources.wait_for(lambda: len(rows(sources.client, "place", "rejected")) == 2)
    sources.wait_for(lambda: rows(sources.client, "k, v") == [(1, "c"), (3, "d")])
    assert process.stop() == 143
    places = [place for (place,) in rows(sources.client, "place", "rejected")]
    assert places == ["t2[0]@5", "t2[0]@6, v"]
    sources.client.define("CREATE STREAM numbers (k BIGINT, v DECIMAL(9, 2)) KEY (k)")
    sources.write(source(broker, "t2", "numbers", more))
    for expected in ("1 row in numbers, 1 row still bad", "0 rows in numbers"):
        replay = sources.psoup("source", "replay-aside", str(sources.file), "t2")
        assert replay.wait() == 0 and expected in replay.text(), replay.text()


def test_debezium(broker: KafkaBroker, sources: Sources) -> None:
    broker.create_topic("t3")
    first, second = {"id": 1, "v": "a"}, {"id": 2, "v": "b"}
    envelopes: list[object] = [
        {"op": "c", "after": first, "source": {"ts_ms": 1_700_000_000_000}},
        {"payload": {"op": "r", "after": second}},
        {"op": "u", "before": second, "after": {"id": 5, "v": "e"}},
        {"op": "d", "before": first},
        {"op": "c", "after": {"id": 9, "v": "i"}},
    ]
    produce(broker, "t3", 0, envelopes)
    producer = broker.producer()
    producer.produce("t3", None, b'{"id": 1}')
    assert producer.flush(60) == 0
    sources.client.define("CREATE STREAM s (id BIGINT, v TEXT) KEY (id)")
    sources.write(source(broker, "t3", "s", 'format = "debezium"'))
    process = sources.start()
    sources.wait_for(lambda: rows(sources.client, "id, v") == [(5, "e"), (9, "i")])
    # A row before the table is truncated, and one after it.
    change = {"op": "c", "after": {"id": 20, "v": "u"}}
    produce(broker, "t3", 0, [change, {"op": "t"}, {"op": "r", "after": {"id": 9, "v": "j"}}])
    assert process.wait() == 1 and "truncated: t3[0]@7" in process.text(), process.text()
    assert rows(sources.client, "id, v") == [(5, "e"), (9, "i"), (20, "u")]
    text = source(broker, "t3", "s", 'format = "debezium"')
    sources.write(text.replace("topic =", 'on_truncate = "delete", topic ='))
    sources.start()
    sources.wait_for(lambda: rows(sources.client, "id, v") == [(9, "j")])


# With 20 kills it is 100,000 rows.
@pytest.mark.parametrize("kills", [15, pytest.param(20, marks=pytest.mark.soak)])
def test_everything_is_killed(
    broker: KafkaBroker, own_server: list[ServerProcess], tmp_path: Path, kills: int
) -> None:
    """Source, server and broker are killed while a second copy runs: each row once, in order."""
    sources = Sources(tmp_path, own_server[-1].address, "main")
    port = own_server[-1].address.rpartition(":")[2]
    topic = f"t4-{kills}"
    broker.create_topic(topic, 2)
    sources.client.define("CREATE STREAM s (p BIGINT, k BIGINT, place BIGINT)")
    columns = 'columns = { p = "$partition", place = "$offset" }'
    sources.write(source(broker, topic, "s", columns))
    processes = [sources.start("--standby"), sources.start("--standby")]
    count, batch = 0, 2500
    try:
        for turn in range(kills):
            for partition in (0, 1):
                values: list[object] = [{"k": k} for k in range(count, count + batch)]
                produce(broker, topic, partition, values)
            count += batch
            match turn % 3:
                case 0:
                    processes[turn % 2].kill()
                    processes[turn % 2] = sources.start("--standby")
                case 1:
                    own_server[-1].kill()
                    own_server.append(ServerProcess(tmp_path / "store", "--port", port))
                case _:
                    broker.kill()
                    broker.start()
            time.sleep(0.5)
        sources.wait_for(lambda: sources.client.stream("s").row_count >= 2 * count, 240)
        time.sleep(2.0)
        by_partition = defaultdict(list)
        for row in sources.client.ask("SELECT p, k, place FROM s ORDER BY row_id"):
            by_partition[row["p"]].append(row["k"])
        assert by_partition[0] == list(range(count))
        assert by_partition[1] == list(range(count))
    finally:
        sources.close()
