"""Reflection of a server's services, with the JSON names of all fields."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import grpc
from google.protobuf import descriptor_pool
from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha import reflection


def enable_reflection(services: Sequence[str], server: grpc.aio.Server) -> None:
    """Add reflection of `services`, and of itself, to `server`."""
    names = (*services, reflection.SERVICE_NAME)
    pool = descriptor_pool.Default()
    files = [pool.FindServiceByName(name).file for name in names]
    reflection.enable_server_reflection(names, server, pool=pool_with_json_names(files))


def pool_with_json_names(files: Iterable[FileDescriptor]) -> DescriptorPool:
    """Return a pool of `files` and all their imports, in which every field has its JSON name."""
    pool, added = DescriptorPool(), set()

    def add(file: FileDescriptor) -> None:
        if file.name in added:
            return
        added.add(file.name)
        # A pool accepts a file only after its imports.
        for imported in file.dependencies:
            add(imported)
        pool.AddSerializedFile(_with_json_names(file).SerializeToString())

    for file in files:
        add(file)
    return pool


def _with_json_names(file: FileDescriptor) -> FileDescriptorProto:
    proto = FileDescriptorProto()
    file.CopyToProto(proto)
    for message in proto.message_type:
        _name_fields(message, file.message_types_by_name[message.name])
    return proto


def _name_fields(proto: DescriptorProto, message: Descriptor) -> None:
    for field in proto.field:
        field.json_name = message.fields_by_name[field.name].json_name
    for nested in proto.nested_type:
        _name_fields(nested, message.nested_types_by_name[nested.name])
