"""The status of a daemon with its age, as `podgpu top` knows it."""

from dataclasses import dataclass

from pipeline.status_page.status_document import StatusDocument


@dataclass(frozen=True, slots=True)
class DaemonStatus:
    """The status of the daemon and its age.

    Attributes:
        status: the last successful response.
        age_seconds: age of that response.
        error: text of the error of the last query; empty if the query succeeded.
        is_late: whether the next response should have come long ago.
    """

    status: StatusDocument
    age_seconds: float = 0.0
    error: str = ""
    is_late: bool = False

    @property
    def is_stale(self) -> bool:
        """Whether the values can differ from those of the node now."""
        return self.is_late or bool(self.error)
