"""Any content of the file is read or refused, without any other error."""

import base64
import json
from contextlib import suppress
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.allocations.gpu_resources import GpuResources
from pipeline.component.claim_file_reader import FileClaims
from pipeline.files.bounded_read import UnreadableError
from sources.checkpoint.allocate_response import InvalidResponseError, gpus_of
from sources.checkpoint.checkpoint_file import read_checkpoint
from tests.sources.checkpoint.checkpoints import GPU, checkpoint, entry, visible
from tests.support.examples import examples

PATH = Path("checkpoint")
VALID = checkpoint(entry([GPU], visible(GPU)), entry({"0": [GPU], "1": None}, None, uid="u2"))

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
entries = st.fixed_dictionaries(
    {},
    optional={
        "PodUID": st.text(max_size=4) | json_values,
        "ContainerName": st.text(max_size=4) | json_values,
        "ResourceName": st.just("nvidia.com/gpu") | json_values,
        "DeviceIDs": st.lists(st.text(max_size=4)) | json_values,
        "AllocResp": st.binary().map(lambda data: base64.b64encode(data).decode()) | json_values,
    },
)


def read(data: bytes) -> None:
    with suppress(UnreadableError):
        assert isinstance(read_checkpoint(data, PATH, GpuResources(("*",))), FileClaims)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    read(data)


@given(st.integers(0, len(VALID)), st.binary(max_size=6), st.integers(0, 6))
@example(0, b"\xff", 0)
@example(120, b"\xff", 1)
@example(60, rb"\ud800", 1)
def test_a_valid_file_with_a_damaged_part_is_read_or_refused(
    at: int, junk: bytes, lost: int
) -> None:
    read(VALID[:at] + junk + VALID[at + lost :])


@given(st.lists(entries, max_size=4))
@settings(max_examples=examples(40))
def test_entries_of_any_format_are_read_or_refused(listed: list[object]) -> None:
    read(checkpoint(*listed))


@given(json_values)
def test_any_json_is_read_or_refused(value: object) -> None:
    read(json.dumps(value).encode())
    read(json.dumps({"Data": value}).encode())


@given(st.binary(max_size=120))
@example(b"\x0a\x04\x0a\x02\xff\xff")
def test_any_response_bytes_are_read_or_refused(data: bytes) -> None:
    with suppress(InvalidResponseError):
        found = gpus_of(base64.b64encode(data).decode())
        assert found is None or found.devices


@given(st.text(max_size=40))
def test_any_response_text_is_read_or_refused(text: str) -> None:
    with suppress(InvalidResponseError):
        gpus_of(text)
