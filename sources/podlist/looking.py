"""One look at the file: watches set, bytes read, claims made. Blocking, so it runs in a thread."""

from dataclasses import dataclass, replace
from typing import TypeAlias

from pipeline.model import Claim
from sources.podlist.document import PodList, read_pod_list
from sources.podlist.options import Options
from sources.podlist.reading import Stamp, UnreadableError, read_file
from sources.podlist.splitting import BadDocumentError
from sources.podlist.watching import Watcher


@dataclass(frozen=True, slots=True)
class Fault:
    """The file yields no list."""

    text: str


Outcome: TypeAlias = PodList | Fault


class Looker:
    """Looks at the file again and again; keeps what it saw, so that equal lists are one object."""

    def __init__(self, options: Options, watcher: Watcher) -> None:
        self._options = options
        self._watcher = watcher
        self._stamp: Stamp | None = None
        self._settled = False
        self._outcome: Outcome = Fault("not looked at yet")
        self._list = PodList((), ())

    def look(self, changed: bool) -> Outcome:
        """Return what the file says now.

        Args:
            changed: it may have changed; else its stamp decides whether it is read.
        """
        self._watcher.arm()
        # Two writes within a tick of the filesystem's clock bear one stamp. A stamp that was read
        # at two looks is old enough to mean something.
        known = self._stamp if self._settled and not changed else None
        try:
            content = read_file(self._options.path, self._options.max_size, known)
        except UnreadableError as error:
            self._stamp, self._settled = None, False
            self._outcome = Fault(str(error))
            return self._outcome
        if content.data is None:
            return self._outcome
        self._settled = content.stamp == self._stamp
        self._stamp = content.stamp
        self._outcome = self._read(content.data)
        return self._outcome

    def _read(self, data: bytes) -> Outcome:
        try:
            read = read_pod_list(data, self._options.path, self._options.integers)
        except BadDocumentError as error:
            return Fault(str(error))
        if read != self._list:
            same = read.claims == self._list.claims
            claims = self._list.claims if same else self._alike(read.claims)
            self._list = PodList(claims, read.complaints)
        return self._list

    def _alike(self, claims: tuple[Claim, ...]) -> tuple[Claim, ...]:
        """Take the subjects that were there before as the objects that they were.

        The join compares them in the event loop, where ten thousand take a while; what is the same
        object is equal at once.
        """
        known = {claim.subject: claim.subject for claim in self._list.claims}
        return tuple(
            [
                replace(claim, subject=known[claim.subject]) if claim.subject in known else claim
                for claim in claims
            ]
        )
