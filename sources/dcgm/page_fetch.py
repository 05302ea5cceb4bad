"""Fetches the page from a server or a file."""

import asyncio
import base64
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from config.value_types import ByteSize
from pipeline.base.clock import Clock
from pipeline.base.errors import TransientError
from pipeline.files.bounded_read import (
    AbsentError,
    Stamp,
    TooLargeError,
    UnreadableError,
    read_file,
    read_local_file,
)
from pipeline.model import NS, Instant
from sources.dcgm.options import Options

_SECRET: Final = ByteSize.parse("64KiB")
_ACCEPT: Final = {"Accept": "text/plain;version=0.0.4"}


class Server:
    """Fetches the page of an exporter by HTTP."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._context: ssl.SSLContext | None = None

    async def get(self) -> bytes:
        """Return the page.

        Raises:
            TransientError: the page cannot be fetched now.
        """
        options = self._options
        fetch, tls = await asyncio.to_thread(_client)
        if self._context is None and options.url.lower().startswith("https:"):
            self._context = await asyncio.to_thread(tls, options.ca_file, insecure=options.insecure)
        headers = {**_ACCEPT, **await asyncio.to_thread(_credentials, options)}
        return await fetch(
            options.url,
            timeout=float(options.timeout),
            most=options.max_size,
            headers=headers,
            context=self._context,
        )

    def read_at(self, now: Instant) -> Instant:
        """Return when the last page was written: a server writes it for each request."""
        return now


class File:
    """Reads the page that an exporter writes to a file."""

    def __init__(self, path: Path, options: Options, clock: Clock) -> None:
        self._path = path
        self._options = options
        self._clock = clock
        self._stamp: Stamp | None = None

    async def get(self) -> bytes | None:
        """Return the page; None if the file has not changed.

        Raises:
            TransientError: the file is missing, cannot be read, or is too old.
        """
        try:
            content = await read_local_file(self._path, self._options.max_size, self._stamp)
        except AbsentError as error:
            raise TransientError(
                f"{error}; check that the exporter runs and that the folder is mounted"
            ) from None
        except TooLargeError as error:
            raise TransientError(f"{error}; raise max_size") from None
        except UnreadableError as error:
            raise TransientError(str(error)) from None
        age = (self._clock.now().wall_ns - content.stamp[0]) / NS
        if age > self._options.max_age_seconds:
            # Without the age, so that the message stays the same.
            raise TransientError(
                f"{self._path}: has not been updated for {self._options.max_age_seconds:g} s "
                "(max_age); check that the exporter runs"
            )
        self._stamp = content.stamp
        return content.data

    def read_at(self, now: Instant) -> Instant:
        """Return when the last page was written, at most `now`."""
        if self._stamp is None:
            return now
        age_ns = max(0, now.wall_ns - self._stamp[0])
        return Instant(now.mono_ns - age_ns, now.wall_ns - age_ns)


def _client() -> tuple[Callable[..., Awaitable[bytes]], Callable[..., ssl.SSLContext]]:
    """Import the HTTP client only if it is used: it takes 10 MB."""
    from pipeline.net.http_get import fetch, tls  # noqa: PLC0415

    return fetch, tls


def _credentials(options: Options) -> dict[str, str]:
    """Return the authorization header, if any; secrets are read each time: they may change."""
    if options.bearer_token_file is not None:
        return {"Authorization": f"Bearer {_secret(options.bearer_token_file)}"}
    if options.password_file is not None:
        pair = f"{options.username}:{_secret(options.password_file)}".encode()
        return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
    return {}


def _secret(path: Path) -> str:
    try:
        data = read_file(path, _SECRET, None).data or b""
    except AbsentError as error:
        raise TransientError(f"{error}; check that the file is mounted") from None
    except UnreadableError as error:
        raise TransientError(str(error)) from None
    text = data.decode("utf-8", "replace").strip()
    if not text or not text.isprintable():
        raise TransientError(f"{path}: must contain one line with only the secret")
    return text
