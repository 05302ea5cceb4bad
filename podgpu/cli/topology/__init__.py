"""`podgpu topology`: how the GPUs are joined, who holds them, and which to take.

`command` is the command; a running daemon is asked by `podgpu.cli.daemon_client`, and without one
`local_topology` finds out from this machine's driver or from a recording.
"""

from typing import Final

TOO_FEW: Final = 3
"""Exit status of `best` where there are not so many GPUs to choose from."""
