"""The account of who used how much of each device. Pure: looks and holders in, `Usage` out.

Belongs here: splitting what an interval brought among containers, and adding it up; their holdings,
with an end; a container that is better known than before; going on from where an account stood;
whom an error strikes. All numbers are integers, and no part is lost: the sum of the parts is the
whole, to the last digit. The rules are told for users in `docs/usage.md`.

Doesn't belong here: I/O, clocks, whose a process is, which source is believed.
"""

from pipeline.usage.apportionment import apportion
from pipeline.usage.device_accounts import UsageAccounts
from pipeline.usage.interval_samples import ContainerName, ProcessSample
from pipeline.usage.renames import NameReferredTo
from pipeline.usage.xid_attribution import AffectedContainer

__all__ = [
    "AffectedContainer",
    "ContainerName",
    "NameReferredTo",
    "ProcessSample",
    "UsageAccounts",
    "apportion",
]
