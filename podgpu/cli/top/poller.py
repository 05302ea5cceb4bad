"""Query a daemon for its status, once or repeatedly in a thread."""

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


def fetch_status(url: str, access: Access = NO_ACCESS_OPTIONS) -> StatusDocument:
    """Return the status of a daemon.

    Args:
        url: address of the daemon.
        access: TLS and credentials.

    Raises:
        PermanentError: the address is invalid, `access` has files that cannot be used, or the
            server is too new or not podgpu.
        TransientError: there is no response now.
    """
    try:
        body = daemon_client.get(url, PATH, {}, access)
    except daemon_client.NotListeningError as error:
        raise TransientError(f"{error}; check that podgpu runs there") from error
    try:
        version = msgspec.json.decode(body, type=_Versioned).version
        if version > VERSION:
            raise PermanentError(f"{url}: that podgpu is newer; use its own `podgpu top`")
        return msgspec.json.decode(body, type=StatusDocument)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise PermanentError(f"{url}{PATH}: the response is not from podgpu") from error


class Poller:
    """Queries the daemon repeatedly in a thread, because a response can take long.

    Args:
        url: address of the daemon.
        interval: seconds between a response and the next query.
        clock: measures the age of a response.
        first: the response to start with.
        query: function that queries the daemon.
    """

    def __init__(
        self,
        url: str,
        interval: float,
        clock: Clock,
        first: StatusDocument,
        query: Callable[[str], StatusDocument] = fetch_status,
    ) -> None:
        self._url = url
        self._interval = interval
        self._clock = clock
        self._query = query
        self._stop = threading.Event()
        # Replaced as a whole, so that the threads need no lock.
        self._known: tuple[StatusDocument, Instant, str] = (first, clock.now(), "")

    def start(self) -> None:
        """Start the thread. It ends with the process, or after `stop`."""
        threading.Thread(target=self._run, name="podgpu-top", daemon=True).start()

    def stop(self) -> None:
        """Stop the queries."""
        self._stop.set()

    def feed(self) -> Feed:
        """Return the last status, its age, and the last error."""
        status, at, error = self._known
        return Feed(status, at.seconds_until(self._clock.now()), error)

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            try:
                self._known = (self._query(self._url), self._clock.now(), "")
            except Exception as error:  # noqa: BLE001 - the user has to see every error
                bug = f"{type(error).__name__}: {error}; this is a bug in podgpu"
                text = str(error) if isinstance(error, ComponentError) else bug
                self._known = (*self._known[:2], text)
