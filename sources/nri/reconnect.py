"""When to leave the runtime alone.

Telling a plugin of everything it runs is what a runtime may fail at: with few but very large
containers some releases crash, and would crash again at each connection.
"""

from dataclasses import dataclass
from typing import Final

_MAX_IN_A_ROW: Final = 3
_FIRST: Final = 300.0
_LONGEST: Final = 3600.0


@dataclass(slots=True)
class ReconnectBackoff:
    """Connections in a row that were lost while the runtime told of all its containers."""

    count: int = 0

    def record_loss(self) -> float | None:
        """Count one more; return for how many seconds to stay away, None for the usual."""
        self.count += 1
        beyond = self.count - _MAX_IN_A_ROW
        return min(_FIRST * 2 ** min(beyond, 10), _LONGEST) if beyond >= 0 else None

    def reset(self) -> None:
        """Start anew: it works."""
        self.count = 0
