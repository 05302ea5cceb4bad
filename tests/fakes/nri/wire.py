"""Hand-written protocol buffers for the messages of NRI, independent of podgpu's schemas."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

Value: TypeAlias = int | str | bytes | Sequence["Value"] | Mapping[str, str]


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def message(fields: Mapping[int, Value]) -> bytes:
    """Encode a message. Empty values and 0 are left out, as in proto3."""
    return b"".join(_field(number, value) for number, value in fields.items())


def _field(number: int, value: Value) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value) if value else b""
    if isinstance(value, str | bytes):
        return _bytes(number, value.encode() if isinstance(value, str) else value)
    if isinstance(value, Mapping):
        pairs = value.items()
        return b"".join(_bytes(number, message({1: k, 2: v}), keep=True) for k, v in pairs)
    return b"".join(
        _bytes(number, each.encode() if isinstance(each, str) else bytes(each), keep=True)  # type: ignore[arg-type]
        for each in value
    )


def _bytes(number: int, value: bytes, *, keep: bool = False) -> bytes:
    return varint(number << 3 | 2) + varint(len(value)) + value if value or keep else b""


def fields(data: bytes) -> dict[int, list[int | bytes]]:
    """Decode a message of varints and byte strings."""
    found: dict[int, list[int | bytes]] = {}
    at = 0

    def number() -> int:
        nonlocal at
        result = shift = 0
        while True:
            byte = data[at]
            at += 1
            result |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return result

    while at < len(data):
        tag = number()
        if tag & 7 == 0:
            found.setdefault(tag >> 3, []).append(number())
        else:
            assert tag & 7 == 2, "no such field is sent"
            size = number()
            assert at + size <= len(data)
            found.setdefault(tag >> 3, []).append(data[at : at + size])
            at += size
    return found


def one(data: bytes, number: int) -> bytes:
    """Return a field of bytes, or empty bytes if it is missing."""
    value = fields(data).get(number, [b""])[0]
    assert isinstance(value, bytes)
    return value


def number(data: bytes, field: int) -> int:
    """Return a field that is a number, or 0 if it is missing."""
    value = fields(data).get(field, [0])[0]
    assert isinstance(value, int)
    return value


def pod(
    name: str = "train-0",
    *,
    namespace: str = "ml",
    uid: str = "",
    annotations: Mapping[str, str] | None = None,
) -> bytes:
    return message(
        {
            1: f"sandbox-{name}",
            2: name,
            3: uid or f"uid-{name}",
            4: namespace,
            5: {"io.cri-containerd.kind": "sandbox", "io.kubernetes.pod.name": name},
            6: annotations or {},
            7: "runc",
            9: 4000,
        }
    )


def container(
    pod: str = "train-0",
    name: str = "main",
    *,
    key: str = "",
    env: Sequence[str] = (),
    state: int = 1,
    pid: int = 0,
    annotations: Mapping[str, str] | None = None,
    mounts: Sequence[str] = (),
    devices: Sequence[bytes] = (),
    cdi: Sequence[str] = (),
    created: int = 0,
    started: int = 0,
    cgroup: str = "",
) -> bytes:
    key = key or f"{pod}.{name}"
    return message(
        {
            1: key,
            2: f"sandbox-{pod}",
            3: name,
            4: state,
            5: {"io.kubernetes.pod.name": pod, "io.kubernetes.container.name": name},
            6: {"io.kubernetes.cri.container-type": "container", **(annotations or {})},
            7: ["/bin/sh", "-c", "sleep 1"],
            8: ["PATH=/bin", *env, "HOME=/root"],
            9: [message({1: path, 2: "bind", 3: "/dev/null", 4: ["ro"]}) for path in mounts],
            11: message({1: [message({1: "pid"})], 2: devices, 5: cgroup or f"/kubepods/{key}"}),
            12: pid,
            14: created,
            15: started,
            20: [message({1: each}) for each in cdi],
        }
    )


def node(path: str, major: int, minor: int, kind: str = "c") -> bytes:
    return message({1: path, 2: kind, 3: major, 4: minor, 5: message({1: 0o666})})


def gpu_node(minor: int) -> bytes:
    return node(f"/dev/nvidia{minor}", 195, minor)


def subject(pod: bytes, container: bytes = b"") -> bytes:
    return message({1: pod, 2: container})
