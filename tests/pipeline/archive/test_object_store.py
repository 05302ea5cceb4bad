"""A store in a folder, and locations that are refused."""

from pathlib import Path

import pytest

from pipeline.archive.object_store import ObjectStore
from pipeline.base.errors import PermanentError, TransientError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with some bytes."""
    path = tmp_path / "file"
    path.write_bytes(b"some bytes")
    return path


def test_objects_are_written_listed_read_and_deleted(
    store: ObjectStore, file: Path, work: Path
) -> None:
    keys = ["v1/a/b%2Fc/x", "v1/a/d", "v1/ab/e"]
    for key in keys:
        store.put(key, file)
    assert sorted(store.keys("v1")) == sorted(keys)
    assert sorted(store.keys("v1/a")) == sorted(keys[:2])
    assert list(store.keys("v2")) == []
    assert store.exists(keys[0])
    found = store.get([*keys, "v1/missing"], work)
    assert {key: path.read_bytes() for key, path in found.items()} == dict.fromkeys(
        keys, b"some bytes"
    )
    store.delete([keys[0], "v1/missing", keys[1]])
    assert list(store.keys("v1")) == keys[2:]
    assert not store.exists(keys[0])


def test_an_object_is_replaced_as_a_whole(store: ObjectStore, file: Path, work: Path) -> None:
    store.put("v1/a", file)
    file.write_bytes(b"other")
    store.put("v1/a", file)
    assert store.get(["v1/a"], work)["v1/a"].read_bytes() == b"other"
    assert list(store.keys("v1")) == ["v1/a"]


def test_a_file_url_is_a_folder(tmp_path: Path, file: Path) -> None:
    folder = tmp_path / "an archive"
    folder.mkdir()
    ObjectStore(folder.as_uri()).put("v1/a", file)
    assert list(ObjectStore(str(folder)).keys("v1")) == ["v1/a"]


@pytest.mark.parametrize(
    ("location", "error"),
    [
        ("/nonexistent/folder", "there is no folder /nonexistent/folder; create or mount it"),
        ("file:///nonexistent/folder", "there is no folder /nonexistent/folder"),
        ("file://host/folder", "write file:///FOLDER"),
        ("data/folder", "write an absolute path, such as /.*/data/folder, or a URL"),
        ("", "write an absolute path"),
        ("ftp://host/folder", "begins with file://, s3://, gs://, az://"),
        ("http://host/folder", "begins with file://, s3://, gs://, az://"),
        ("s3://", "the archive s3:// cannot be used"),
    ],
)
def test_other_locations_are_refused(location: str, error: str) -> None:
    with pytest.raises(PermanentError, match=error):
        ObjectStore(location)


@pytest.mark.parametrize(
    "location",
    [
        "s3://AKIA:secret@bucket/prefix",
        "https://AKIA:secret@bucket.example/prefix",
        "az://container/prefix?sig=secret",
        "gs://bucket#secret",
    ],
)
def test_credentials_in_a_location_are_refused_and_not_shown(location: str) -> None:
    with pytest.raises(PermanentError, match="give credentials in the environment") as refused:
        ObjectStore(location)
    assert "secret" not in str(refused.value)


def test_azure_needs_an_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(PermanentError, match="Account must be specified"):
        ObjectStore("az://container/prefix")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    assert ObjectStore("az://container/prefix").location == "az://container/prefix"


def test_a_file_in_the_place_of_a_folder_is_an_error(store: ObjectStore, file: Path) -> None:
    store.put("v1/a", file)
    with pytest.raises((TransientError, PermanentError), match="cannot write v1/a/b"):
        store.put("v1/a/b", file)


def test_errors_do_not_show_the_queries_of_urls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT", "ftp://127.0.0.1:1/x?key=SECRET")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "SECRET")
    with pytest.raises((TransientError, PermanentError)) as refused:
        list(ObjectStore("s3://bucket").keys("v1"))
    assert "SECRET" not in str(refused.value)
