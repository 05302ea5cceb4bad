"""When to stop reconnecting to the runtime.

Listing all containers for a plugin can make a runtime fail: with a few very large containers, some
releases crash, and would crash again at each connection.
"""

from dataclasses import dataclass
from typing import Final

_MAX_IN_A_ROW: Final = 3
_FIRST_SECONDS: Final = 300.0
_MAX_SECONDS: Final = 3600.0


@dataclass(slots=True)
class ReconnectBackoff:
    """Counts consecutive connections that were lost while the runtime listed its containers."""

    count: int = 0

    def record_loss(self) -> float | None:
        """Count a loss; return the seconds to wait before reconnecting, None for the default."""
        self.count += 1
        beyond = self.count - _MAX_IN_A_ROW
        return min(_FIRST_SECONDS * 2 ** min(beyond, 10), _MAX_SECONDS) if beyond >= 0 else None

    def reset(self) -> None:
        """Reset the count after a successful synchronization."""
        self.count = 0
