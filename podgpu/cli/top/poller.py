"""Asks a daemon for its status, once or over and over beside the terminal."""

import threading
from collections.abc import Callable
from typing import Final

import msgspec

from pipeline.base.clock import Clock
from pipeline.base.errors import ComponentError, PermanentError, TransientError
from pipeline.model import Instant
from pipeline.status_page.status_document import VERSION, StatusDocument
from podgpu.cli import daemon_client
from podgpu.cli.client_options import NO_ACCESS_OPTIONS, Access
from podgpu.cli.top.view import Feed

PATH: Final = "/status"


class _Versioned(msgspec.Struct):
    version: int
    node: str


def ask(url: str, access: Access = NO_ACCESS_OPTIONS) -> StatusDocument:
    """Return the status of the daemon at an address.

    Args:
        url: of its listener.
        access: how it is asked.

    Raises:
        PermanentError: the address is none, `access` has files that can't be used, or what is there
            is too new or no podgpu.
        TransientError: there is no answer now.
    """
    try:
        body = daemon_client.get(url, PATH, {}, access)
    except daemon_client.NotListeningError as error:
        raise TransientError(f"{error}; does podgpu run there?") from error
    try:
        version = msgspec.json.decode(body, type=_Versioned).version
        if version > VERSION:
            raise PermanentError(f"{url}: this podgpu is newer; take its own `podgpu top`")
        return msgspec.json.decode(body, type=StatusDocument)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise PermanentError(f"{url}{PATH}: this is no answer of podgpu's") from error


class Asker:
    """Asks over and over, on a thread of its own: an answer may take long.

    Args:
        url: who is asked.
        interval: seconds from one answer to the next question.
        clock: tells how old an answer is.
        first: the answer that is there already.
        how: asks.
    """

    def __init__(
        self,
        url: str,
        interval: float,
        clock: Clock,
        first: StatusDocument,
        how: Callable[[str], StatusDocument] = ask,
    ) -> None:
        self._url = url
        self._interval = interval
        self._clock = clock
        self._how = how
        self._stop = threading.Event()
        # Changed as a whole, so that neither thread waits for the other.
        self._known: tuple[StatusDocument, Instant, str] = (first, clock.now(), "")

    def start(self) -> None:
        """Begin; the thread ends with the program, or after `stop`."""
        threading.Thread(target=self._run, name="podgpu-top", daemon=True).start()

    def stop(self) -> None:
        """Ask no more."""
        self._stop.set()

    def feed(self) -> Feed:
        """Return what is known by now."""
        status, at, error = self._known
        return Feed(status, at.seconds_until(self._clock.now()), error)

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            try:
                self._known = (self._how(self._url), self._clock.now(), "")
            except ComponentError as error:
                self._failed(str(error))
            except Exception as error:  # noqa: BLE001 - whatever it is, who looks has to see it
                self._failed(f"{type(error).__name__}: {error}; this is a bug of podgpu's")

    def _failed(self, error: str) -> None:
        status, at, _ = self._known
        self._known = (status, at, error)
