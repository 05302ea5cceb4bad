"""Protocol buffers without generated code: messages made from a compiled schema at run time.

Each schema lives in a pool of its own. The default pool knows each file and message by one name for
the whole process, so that two libraries that bring the kubelet's schema clash in it.
"""

from importlib.resources import files
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

__all__ = ["DecodeError", "Message", "Schema"]


class Schema:
    """The messages of a compiled schema.

    Args:
        compiled: a serialised `FileDescriptorSet` in which every file comes after those that it
            imports, as protoc writes it.
    """

    def __init__(self, compiled: bytes) -> None:
        self._pool = descriptor_pool.DescriptorPool()
        for file in descriptor_pb2.FileDescriptorSet.FromString(compiled).file:
            self._pool.Add(file)

    @classmethod
    def load_from_package(cls, package: str, name: str) -> "Schema":
        """Read the schema `name` that lies in a package of ours."""
        return cls(files(package).joinpath(name).read_bytes())

    def message(self, name: str) -> type[Any]:
        """Return the class of a message by its full name, `package.Message`.

        Raises:
            KeyError: the schema has no such message.
        """
        return message_factory.GetMessageClass(self._pool.FindMessageTypeByName(name))
