"""Protocol buffers without generated code: message classes are made from a compiled schema.

Each schema has its own descriptor pool. In the default pool each file and message name exists once
per process, so that two libraries that contain the kubelet's schema would conflict.
"""

from importlib.resources import files
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

__all__ = ["DecodeError", "Message", "Schema"]


class Schema:
    """The message classes of a compiled schema.

    Args:
        compiled: a serialized `FileDescriptorSet` in which every file comes after its imports, as
            protoc writes it.
    """

    def __init__(self, compiled: bytes) -> None:
        self._pool = descriptor_pool.DescriptorPool()
        for file in descriptor_pb2.FileDescriptorSet.FromString(compiled).file:
            self._pool.Add(file)

    @classmethod
    def load_from_package(cls, package: str, name: str) -> "Schema":
        """Read the schema file `name` from one of podgpu's packages."""
        return cls(files(package).joinpath(name).read_bytes())

    def message(self, name: str) -> type[Any]:
        """Return the class of a message by its full name, `package.Message`.

        Raises:
            KeyError: the schema has no such message.
        """
        return message_factory.GetMessageClass(self._pool.FindMessageTypeByName(name))
