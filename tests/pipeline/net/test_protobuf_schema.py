"""Tests of messages that are made from compiled schemas."""

from pathlib import Path

import pytest
from google.protobuf import descriptor_pool

from pipeline.net.protobuf_schema import DecodeError, Schema
from tests.support.protos import SCHEMAS, compiled


@pytest.fixture
def make(tmp_path: Path) -> Schema:
    (tmp_path / "letter.proto").write_text("""
        syntax = "proto3";
        package post.v1;
        message Letter {
          string text = 1;
          repeated Stamp stamps = 2;
          map<string, string> marks = 3;
        }
        message Stamp { uint64 value = 1; }
    """)
    return Schema(compiled(tmp_path / "letter.proto"))


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_each_checked_in_binary_schema_is_up_to_date(schema: Path) -> None:
    """If this fails, run `make protos`."""
    assert schema.with_suffix(".binpb").read_bytes() == compiled(schema)


def test_a_message_is_decoded_as_it_was_encoded(make: Schema) -> None:
    letter = make.message("post.v1.Letter")
    sent = letter(text="hello", stamps=[{"value": 2**64 - 1}], marks={"a": "b"})
    read = letter.FromString(sent.SerializeToString())
    assert (read.text, [stamp.value for stamp in read.stamps], dict(read.marks)) == (
        "hello",
        [2**64 - 1],
        {"a": "b"},
    )


def test_unknown_fields_are_ignored(make: Schema) -> None:
    stamp = make.message("post.v1.Stamp")
    assert stamp.FromString(b"\x08\x05\x52\x03new").value == 5


@pytest.mark.parametrize(
    "data", [b"\x0a\x05ab", b"\xff", b"\x0a\x01\xff", b"\x1a\x05\x0a\x01\xff\x12\x00"]
)
def test_invalid_bytes_are_a_decode_error(make: Schema, data: bytes) -> None:
    with pytest.raises(DecodeError):
        make.message("post.v1.Letter").FromString(data)


def test_an_unknown_message_name_is_an_error(make: Schema) -> None:
    with pytest.raises(KeyError):
        make.message("post.v1.Parcel")


def test_a_schema_is_loaded_from_a_package() -> None:
    schema = Schema.load_from_package("sources.podresources", "podresources.binpb")
    assert schema.message("v1.PodResources")(name="a").name == "a"


def test_schemas_share_no_descriptors_with_each_other_or_the_process() -> None:
    ours = Schema.load_from_package("sources.podresources", "podresources.binpb")
    again = Schema.load_from_package("sources.podresources", "podresources.binpb")
    assert ours.message("v1.PodResources") is not again.message("v1.PodResources")
    with pytest.raises(KeyError):
        descriptor_pool.Default().FindMessageTypeByName("v1.PodResources")


def test_a_schema_can_import_another_file(tmp_path: Path) -> None:
    (tmp_path / "a.proto").write_text('syntax = "proto3"; package x; message A { int32 n = 1; }')
    (tmp_path / "b.proto").write_text(
        'syntax = "proto3"; package x; import "a.proto"; message B { A a = 1; }'
    )
    schema = Schema(compiled(tmp_path / "b.proto"))
    assert schema.message("x.B")(a={"n": 3}).a.n == 3
