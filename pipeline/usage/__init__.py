"""Usage accounts: which container used how much of each device.

The package is pure: usage samples and holders go in, `Usage` comes out. It splits the time, busy
time, energy and memory of each interval among containers, adds them up, keeps a holding for each
stay of a container on a device, renames containers whose identity becomes complete, continues
stored accounts after a restart, and finds the containers that an XID error affects. All amounts
are integers, and the sum of the parts is exactly the whole. `docs/usage.md` explains the rules.

I/O, clocks, the owners of processes and the choice between sources are not in this package.
"""

from pipeline.usage.apportionment import apportion
from pipeline.usage.device_accounts import UsageAccounts
from pipeline.usage.interval_samples import ContainerName, ProcessSample
from pipeline.usage.renames import NameReferredTo

__all__ = [
    "ContainerName",
    "NameReferredTo",
    "ProcessSample",
    "UsageAccounts",
    "apportion",
]
