"""Every integer on the wire is in the table of docs/reference/security.md."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from psoup.v1 import psoup_pb2 as pb

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "security.md"
INTEGERS = {
    FieldDescriptor.CPPTYPE_INT32,
    FieldDescriptor.CPPTYPE_INT64,
    FieldDescriptor.CPPTYPE_UINT32,
    FieldDescriptor.CPPTYPE_UINT64,
}


def integer_fields(messages: Iterable[Descriptor]) -> Iterator[str]:
    for message in messages:
        for field in message.fields:
            if field.cpp_type in INTEGERS:
                yield f"{message.name}.{field.name}"
        yield from integer_fields(message.nested_types)


def listed_fields() -> list[str]:
    _, table = PAGE.read_text().split("| numbers | what they reveal |\n", 1)
    rows = table.split("\n\n", 1)[0].splitlines()
    return [name for row in rows for name in re.findall(r"`(\w+\.\w+)`", row.split(" | ")[0])]


def test_the_table_names_every_integer_of_the_wire_once() -> None:
    listed = Counter(listed_fields())
    assert set(listed.values()) == {1}
    fields = set(integer_fields(pb.DESCRIPTOR.message_types_by_name.values()))
    assert len(fields) > 80 and fields == set(listed)
