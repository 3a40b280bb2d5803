"""A Kafka broker in KRaft mode, from Maven jars alone."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.source.postgresql import CACHE

VERSION = "4.3.1"
JARS = CACHE / f"kafka-{VERSION}"
_SECONDS = 300
_POM = f"""<project><modelVersion>4.0.0</modelVersion>
<groupId>psoup</groupId><artifactId>tests</artifactId><version>1</version><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId>
<version>{VERSION}</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId>
<version>1.7.36</version></dependency>
</dependencies></project>
"""
_PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={folder}/logs
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
"""


class KafkaBroker:
    """A broker in a folder of its own, which can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        port, controller = _free_port(), _free_port()
        self.servers = f"127.0.0.1:{port}"
        self._settings = folder / "kafka.properties"
        self._settings.write_text(
            _PROPERTIES.format(port=port, controller=controller, folder=folder)
        )
        tool = "kafka.tools.StorageTool"
        cluster = self._java(tool, "random-uuid").strip().splitlines()[-1]
        self._java(tool, "format", "-t", cluster, "-c", str(self._settings))
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def _command(self, *arguments: str) -> list[str]:
        options = ["-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        return ["java", *options, "-cp", f"{JARS}/lib/*", *arguments]

    def _java(self, *arguments: str) -> str:
        done = subprocess.run(
            self._command(*arguments), capture_output=True, timeout=_SECONDS, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start(self) -> None:
        with (self._folder / "log").open("ab") as sink:
            self._process = subprocess.Popen(
                self._command("kafka.Kafka", str(self._settings)), stdout=sink, stderr=sink
            )
        deadline = time.monotonic() + _SECONDS
        while not self._is_ready():
            assert self._process.poll() is None, (self._folder / "log").read_text()[-3000:]
            assert time.monotonic() < deadline
            time.sleep(0.2)

    def _is_ready(self) -> bool:
        from confluent_kafka import KafkaException

        try:
            return bool(self.admin().list_topics(timeout=2.0).brokers)
        except KafkaException:
            return False

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.servers, "log_level": 0})

    def create_topic(self, name: str, partitions: int = 1) -> None:
        from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

        self._wait_for("create_topics", NewTopic(name, partitions, 1))

    def delete_topic(self, name: str) -> None:
        self._wait_for("delete_topics", name)

    def add_partitions(self, name: str, count: int) -> None:
        from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]

        self._wait_for("create_partitions", NewPartitions(name, count))

    def _wait_for(self, method: str, argument: Any) -> None:
        admin = self.admin()  # its futures fail if it is not kept
        for future in getattr(admin, method)([argument]).values():
            future.result()

    def producer(self, **settings: Any) -> Any:
        from confluent_kafka import Producer

        named = {name.replace("_", "."): value for name, value in settings.items()}
        return Producer(
            {
                "bootstrap.servers": self.servers,
                "enable.idempotence": True,
                "linger.ms": 5,
                "log_level": 0,
                **named,
            }
        )


@contextlib.contextmanager
def kafka_broker(folder: Path) -> Iterator[KafkaBroker]:
    """Start a broker; skip the test, with the reason, if that is impossible on this machine."""
    pytest.importorskip("confluent_kafka")
    if shutil.which("java") is None:
        pytest.skip("no Java for a Kafka broker")
    if not (JARS / "complete").exists():
        _fetch()
    folder.mkdir()
    broker = KafkaBroker(folder)
    try:
        yield broker
    finally:
        broker.kill()


def _fetch() -> None:
    if shutil.which("mvn") is None:
        pytest.skip("no Maven to fetch a Kafka broker with")
    JARS.mkdir(parents=True, exist_ok=True)
    (JARS / "pom.xml").write_text(_POM)
    command = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib"]
    done = subprocess.run(
        command, cwd=JARS, capture_output=True, timeout=_SECONDS, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"the jars of Kafka {VERSION} can't be fetched: {done.stdout[-300:]}")
    (JARS / "complete").write_text("")


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
