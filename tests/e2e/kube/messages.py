"""Messages between the kubelet and its plugins, from the .proto files in `protos`.

They are in a separate descriptor pool, because the default pool may contain other messages of the
same names.
"""

import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_tools import protoc

_PROTOS = Path(__file__).parent / "protos"

Message = Any
"""A class or an instance, whose fields are known only at run time."""

Answer = Callable[[Message, Any], Any]
"""A method of a service, with the request and gRPC's context as arguments."""


@cache
def _pool() -> Any:
    files = sorted(map(str, _PROTOS.glob("*.proto")))
    with tempfile.TemporaryDirectory() as made:
        out = Path(made) / "set"
        status = protoc.main(["protoc", f"-I{_PROTOS}", f"--descriptor_set_out={out}", *files])
        assert status == 0, f"protoc: status {status}"
        described = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in described.file:
        pool.Add(file)
    return pool


@cache
def message(name: str) -> Message:
    """Return the class of a message by its full name."""
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(name))


def handler(service: str, methods: Mapping[str, Answer]) -> grpc.GenericRpcHandler:
    """Return the gRPC handler of a service; streaming methods are asynchronous generators."""
    described = _pool().FindServiceByName(service)
    made = {}
    for name, answer in methods.items():
        method = described.FindMethodByName(name)
        wrap = (
            grpc.unary_stream_rpc_method_handler
            if method.server_streaming
            else grpc.unary_unary_rpc_method_handler
        )
        made[name] = wrap(
            answer,
            request_deserializer=message(method.input_type.full_name).FromString,
            response_serializer=lambda answer: answer.SerializeToString(),
        )
    return grpc.method_handlers_generic_handler(service, made)


def method(channel: Any, service: str, name: str) -> Callable[..., Any]:
    """Return a unary method of a service for a client."""
    described = _pool().FindServiceByName(service).FindMethodByName(name)
    made: Callable[..., Any] = channel.unary_unary(
        f"/{service}/{name}",
        request_serializer=lambda request: request.SerializeToString(),
        response_deserializer=message(described.output_type.full_name).FromString,
    )
    return made
