"""Connections to Kafka: settings, consumers, and what brokers know of a topic."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)

from psoup.source.errors import BadSettings, SourceAway

_SECONDS = 10.0
_QUEUED_KILOBYTES = 8_192
# What the source decides itself.
_OWN_SETTINGS = frozenset(
    {
        "auto.offset.reset",
        "bootstrap.servers",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "group.id",
        "isolation.level",
    }
)


def read_properties(path: Path) -> dict[str, str]:
    """Return the settings of a file with lines `name=value`. Raises BadSettings."""
    settings = {}
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise BadSettings(f"settings_file {path} can't be read") from None
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith(("#", "!")):
            continue
        name, equals, value = line.partition("=")
        if not equals or name.strip() in _OWN_SETTINGS:
            # The value could be a secret.
            problem = "is set by the source" if equals else "write name=value"
            raise BadSettings(f"settings_file {path}, line {number}: {problem}")
        settings[name.strip()] = value.strip()
    return settings


class Broker:
    """The brokers of a source. The settings file is read again for every connection."""

    def __init__(self, servers: str, topic: str, group: str, settings_file: Path | None) -> None:
        self._servers, self.topic, self._group = servers, topic, group
        self._settings_file = settings_file
        self._admin: AdminClient | None = None
        self._lock = threading.Lock()

    def _settings(self) -> dict[str, Any]:
        extra = read_properties(self._settings_file) if self._settings_file else {}
        return {
            **extra,
            "bootstrap.servers": self._servers,
            "client.id": "psoup",
            "topic.metadata.refresh.interval.ms": 10_000,
        }

    def consumer(self, on_error: Callable[[Any], None] = lambda error: None) -> Any:
        """Return a consumer that reads only what is committed, and never moves by itself."""
        settings = self._settings() | {
            "group.id": self._group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "queued.max.messages.kbytes": _QUEUED_KILOBYTES,
            "fetch.max.bytes": _QUEUED_KILOBYTES << 10,
            "error_cb": on_error,
            "log_level": 0,
        }
        try:
            return confluent_kafka.Consumer(settings)
        except confluent_kafka.KafkaException as error:
            raise BadSettings(f"Kafka settings: {reason(error)}") from None

    def _asked(self, call: Callable[[AdminClient], Mapping[Any, Any]]) -> dict[Any, Any]:
        """Return the results of the futures of a call. Raises KafkaException and TimeoutError."""
        with self._lock:
            if self._admin is None:
                silent = {"log_level": 0, "error_cb": lambda error: None}
                self._admin = AdminClient(self._settings() | silent)
            admin = self._admin
        try:
            return {key: future.result(_SECONDS + 5.0) for key, future in call(admin).items()}
        except (confluent_kafka.KafkaException, TimeoutError):
            # The next connection reads the settings again.
            self._admin = None
            raise

    def describe(self) -> tuple[str, list[int]]:
        """Return the id of the topic and its partitions. Raises SourceAway."""
        topics = confluent_kafka.TopicCollection([self.topic])
        try:
            (description,) = self._asked(
                lambda admin: admin.describe_topics(topics, request_timeout=_SECONDS)
            ).values()
        except confluent_kafka.KafkaException as error:
            if error.args[0].code() == confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise SourceAway(f"there is no topic {self.topic}") from None
            raise SourceAway(f"Kafka at {self._servers}: {reason(error)}") from None
        except TimeoutError:
            raise SourceAway(f"Kafka at {self._servers}: no broker answers") from None
        return str(description.topic_id), sorted(p.id for p in description.partitions)

    def retention_seconds(self) -> float | None:
        """Return for how long the topic keeps messages; None for ever, and if brokers don't say."""
        topic = ConfigResource(ResourceType.TOPIC, self.topic)
        try:
            (settings,) = self._asked(
                lambda admin: admin.describe_configs([topic], request_timeout=_SECONDS)
            ).values()
            milliseconds = int(settings["retention.ms"].value)
        except (confluent_kafka.KafkaException, TimeoutError, KeyError, ValueError):
            # It needs the right DescribeConfigs, which a source may lack.
            return None
        return milliseconds / 1000 if milliseconds >= 0 else None

    def ends(self, partitions: Iterable[int]) -> dict[int, tuple[int, int]]:
        """Return the first offset that each partition has, and the one after the last committed."""
        numbers = list(partitions)
        first = self._offsets(numbers, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
        last = self._offsets(numbers, OffsetSpec.latest())  # type: ignore[no-untyped-call]
        return {number: (first[number], last[number]) for number in numbers}

    def offset_at(self, partition: int, milliseconds: int) -> int:
        """Return the first offset at or after an instant."""
        offset = self._offsets([partition], OffsetSpec.for_timestamp(milliseconds))[partition]
        return offset if offset >= 0 else self.ends([partition])[partition][1]

    def _offsets(self, partitions: Iterable[int], place: Any) -> dict[int, int]:
        places = {confluent_kafka.TopicPartition(self.topic, n): place for n in partitions}
        level = confluent_kafka.IsolationLevel.READ_COMMITTED
        try:
            results = self._asked(
                lambda admin: admin.list_offsets(
                    places, isolation_level=level, request_timeout=_SECONDS
                )
            )
        except confluent_kafka.KafkaException as error:
            raise SourceAway(f"Kafka: {reason(error)}") from None
        except TimeoutError:
            raise SourceAway(f"Kafka at {self._servers}: no broker answers") from None
        return {place.partition: int(result.offset) for place, result in results.items()}


def reason(error: Any) -> str:
    """Return the text of an error of Kafka, or of an exception that has one."""
    inner = error.args[0] if isinstance(error, Exception) and error.args else error
    return inner.str() if hasattr(inner, "str") else str(inner)[:300]
