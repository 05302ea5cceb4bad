"""The store of an archive's objects: a folder, S3, Google Cloud Storage, or Azure Blob Storage.

This is the only module that imports obstore.
"""

import html
import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import unquote, urlsplit

import obstore
from obstore import exceptions
from obstore.store import LocalStore, from_url

from pipeline.base.errors import PermanentError, TransientError
from pipeline.base.safe_text import line, without_control_characters
from pipeline.files.disk_sync import flush_folder

SCHEMES: Final = ("file", "s3", "gs", "az")
"""Schemes of the locations that podgpu is tested with or supports."""

_RETRY_SECONDS: Final = 60
"""Time from the start of a request after which it is not repeated."""

_RETRIES: Final = 5
_PART: Final = 8 << 20
"""Objects that are larger than this number of bytes are sent in parts of this size."""

_PAGE: Final = 1000
_AT_ONCE: Final = 8
_HELP: Final = (
    "docs/archive-format.md#locations lists the environment variables for credentials and addresses"
)
_HELP_RIGHTS: Final = (
    "docs/archive.md#credentials-that-can-only-write lists the rights that the credentials need"
)
_NO_RIGHT: Final = r"\b(AccessDenied|AuthorizationPermissionMismatch)\b"
"""Matches what S3, Google Cloud Storage and Azure answer if a right is missing."""

# S3 answers to a request that deletes several objects with a status for each of them.
_REFUSING_STATUS: Final = r"status code: (400|401|403|404)\b|\(code: AccessDenied\)"
_ANSWER: Final = (
    r"status code: (?P<status>\d+ [A-Za-z ]+):.*<Code>(?P<code>.*?)</Code>\s*"
    r"<Message>(?P<message>.*?)</Message>"
)
"""Matches what S3, Google Cloud Storage and Azure answer to a request that they refuse."""

_REFUSED: Final = (
    exceptions.PermissionDeniedError,
    exceptions.UnauthenticatedError,
    exceptions.UnknownConfigurationKeyError,
    exceptions.NotSupportedError,
    exceptions.InvalidPathError,
)


class Store(Protocol):
    """What the archive needs of a store of objects. All methods block.

    A key is a text without a leading slash. Methods raise `TransientError` if the store cannot be
    reached, is overloaded or fails, and `PermanentError` if it refuses the request.
    """

    location: str

    def keys(self, prefix: str) -> Iterator[str]:
        """Yield the keys below a folder, sorted if the store sorts them.

        Args:
            prefix: the folder, without a slash at the end. A folder that is missing has no keys.
        """

    def get(self, keys: Sequence[str], folder: Path) -> dict[str, Path]:
        """Copy objects to new files of a folder, and return these by key.

        An object that does not exist (any more) is left out.
        """

    def put(self, key: str, file: Path) -> None:
        """Write a file as an object. Readers see the previous object or the whole new one."""

    def exists(self, key: str) -> bool:
        """Return whether there is an object with this key."""

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects. An object that does not exist (any more) is not an error."""


class ObjectStore:
    """A store at a location: an absolute path of a folder, or a URL.

    Credentials, regions and addresses come from the environment, as obstore documents them, such
    as AWS_ACCESS_KEY_ID, AWS_REGION and AWS_ENDPOINT.

    Args:
        location: a path, or file:///FOLDER, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or
            az://CONTAINER/PREFIX. A folder must exist.

    Raises:
        PermanentError: the location is invalid, the folder does not exist, or an environment
            variable has an invalid value.
    """

    def __init__(self, location: str) -> None:
        _refuse_credentials(location)
        self.location = location
        self._folder = _folder_of(location)
        if self._folder is not None:
            if not self._folder.is_dir():
                raise PermanentError(
                    f"the archive {location}: there is no folder {self._folder}; create or mount it"
                )
            self._store: Any = LocalStore(self._folder)
            return
        scheme = location.partition("://")[0]
        if scheme not in SCHEMES:
            raise PermanentError(
                f"{line(location, 80)} is no location of an archive; write an absolute path of a "
                f"folder, or a URL that begins with {', '.join(f'{s}://' for s in SCHEMES)}"
            )
        try:
            self._store = from_url(
                location,
                # No options of the client: with them, obstore ignores those of the environment. Its
                # limits are 5 s to connect and 30 s for a request.
                retry_config={
                    "max_retries": _RETRIES,
                    "retry_timeout": timedelta(seconds=_RETRY_SECONDS),
                },
            )
        except (exceptions.BaseError, ValueError, OSError) as error:
            raise PermanentError(
                f"the archive {location} cannot be used: {_reason(error)}; {_HELP}"
            ) from error

    def keys(self, prefix: str) -> Iterator[str]:
        """Yield the keys below a folder, sorted except those of a `file` location."""
        with self._errors(f"list {prefix}"):
            for page in obstore.list(self._store, prefix, chunk_size=_PAGE):
                for found in page:
                    yield found["path"]

    def get(self, keys: Sequence[str], folder: Path) -> dict[str, Path]:
        """Copy objects to new files of a folder, and return these by key.

        Where the archive is in the same file system as the folder, a copy is a hard link: an object
        never changes, and the link remains if the object is deleted.
        """
        targets = {key: folder / f"{number:06}.parquet" for number, key in enumerate(keys)}
        if not targets:
            return {}
        with ThreadPoolExecutor(min(_AT_ONCE, len(targets))) as pool:
            found = list(pool.map(self._copy, targets, targets.values()))
        return {key: path for (key, path), got in zip(targets.items(), found, strict=True) if got}

    def put(self, key: str, file: Path) -> None:
        """Write a file as an object. In a folder, it is on the disk when this returns."""
        with self._errors(f"write {key}"):
            obstore.put(
                self._store,
                key,
                file,
                use_multipart=file.stat().st_size > _PART,
                chunk_size=_PART,
                max_concurrency=2,
            )
            if self._folder is not None:
                _flush(self._folder, key)

    def exists(self, key: str) -> bool:
        """Return whether there is an object with this key."""
        with self._errors(f"read {key}"):
            try:
                obstore.head(self._store, key)
            except FileNotFoundError:
                return False
        return True

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects. An object that does not exist (any more) is not an error."""
        for start in range(0, len(keys), _PAGE):
            some = list(keys[start : start + _PAGE])
            with self._errors(f"delete {some[0]}"):
                try:
                    obstore.delete(self._store, some)
                except FileNotFoundError:
                    # The rest may not have been deleted.
                    for key in some:
                        self._delete_one(key)

    def _delete_one(self, key: str) -> None:
        try:
            obstore.delete(self._store, key)
        except FileNotFoundError:
            return

    def _copy(self, key: str, target: Path) -> bool:
        if self._folder is not None:
            # Another file system or another owner may prevent a link.
            with suppress(OSError):
                target.hardlink_to((self._folder / key).resolve(strict=True))
                return True
        with self._errors(f"read {key}"):
            try:
                content = obstore.get(self._store, key)
                with target.open("xb") as file:
                    for chunk in content.stream():
                        file.write(chunk)
            except FileNotFoundError:
                return False
        return True

    @contextmanager
    def _errors(self, action: str) -> Iterator[None]:
        """Raise errors of obstore as the project's, which name the location and the action."""
        where = f"the archive {self.location}: cannot {action}"
        try:
            yield
        except _REFUSED as error:
            raise PermanentError(f"{where}: {_reason(error)}; {_help(error)}") from error
        except PermissionError as error:
            raise PermanentError(
                f"{where}: {_reason(error)}; uid {os.geteuid()} needs access to the folder"
            ) from error
        except FileNotFoundError as error:
            raise PermanentError(
                f"{where}: {_reason(error)}; create the bucket, or correct the location"
            ) from error
        except (exceptions.BaseError, OSError) as error:
            if re.search(_REFUSING_STATUS, str(error)):
                raise PermanentError(f"{where}: {_reason(error)}; {_help(error)}") from error
            raise TransientError(f"{where}: {_reason(error)}") from error


def _refuse_credentials(location: str) -> None:
    """Refuse a URL that may have credentials: the location is in messages and in the ledger.

    Raises:
        PermanentError: the URL has a user or a query. The message does not have the URL.
    """
    scheme, is_url, rest = location.partition("://")
    if is_url and ("@" in rest or "?" in rest or "#" in rest):
        raise PermanentError(
            f"the location that begins with {line(scheme, 20)}:// has a user, a query or a "
            f"fragment: give credentials in the environment; {_HELP}"
        )


def _folder_of(location: str) -> Path | None:
    """Return the folder of a path or of a file URL; None for another URL.

    Raises:
        PermanentError: the path is not absolute, or the URL has a host.
    """
    if location.startswith("file:"):
        url = urlsplit(location)
        path = Path(unquote(url.path))
        if url.netloc not in ("", "localhost") or not path.is_absolute():
            raise PermanentError(f"{line(location, 80)} is no file URL; write file:///FOLDER")
        return path
    if "://" in location:
        return None
    if not location.startswith("/"):
        raise PermanentError(
            f"{line(location, 80)} is no location of an archive; write an absolute path, such as "
            f"{Path(location).absolute()}, or a URL such as s3://BUCKET/PREFIX"
        )
    return Path(location)


def _flush(root: Path, key: str) -> None:
    """Flush an object and the names of its folders to the disk."""
    file = root / key
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    for folder in file.parents:
        flush_folder(folder)
        if folder == root:
            break


def _help(error: BaseException) -> str:
    """Return which page helps with a refusal."""
    return _HELP_RIGHTS if re.search(_NO_RIGHT, str(error)) else _HELP


def _reason(error: BaseException) -> str:
    """Return the text of an error: one line, without the queries of URLs, which may have keys."""
    text = str(error).partition("\n\nDebug source")[0]
    if answer := re.search(_ANSWER, text, re.DOTALL):
        message = html.unescape(answer["message"])
        text = f"status {answer['status']}: {answer['code']}: {message}"
    text = re.sub(r"(https?://[^\s?]*)\?\S*", r"\1?...", text)
    return line(without_control_characters(text).rstrip("."))
