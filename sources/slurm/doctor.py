"""The checks of `podgpu doctor` for the source `slurm`: cgroups, scontrol and its cluster."""

from functools import partial
from typing import Final

from pipeline.component.findings import BOTH, FAILS, Check, Finding
from pipeline.diagnostics.context import DoctorContext, in_thread
from sources.slurm import job_cgroups
from sources.slurm.job_cgroups import JobCgroups
from sources.slurm.job_record import setting
from sources.slurm.options import Options
from sources.slurm.slurm_commands import SlurmCommands, SlurmError

_CGROUPS: Final = Check("slurm.cgroups", BOTH)
_SCONTROL: Final = Check("slurm.scontrol", FAILS)
_CLUSTER: Final = Check("slurm.cluster", BOTH)
_NO_ACCOUNTING: Final = "accounting_storage/none"


async def examine(options: Options, _ctx: DoctorContext) -> list[Finding]:
    """Check `slurm.cgroups`, `slurm.scontrol` and `slurm.cluster`."""
    place = str(options.cgroups)
    findings = []
    found: JobCgroups | None = None
    try:
        found = await in_thread(partial(job_cgroups.read, options.cgroups, options.node_name))
    except OSError as error:
        text, fix = str(error), "mount the host's cgroups, and set cgroups to their path"
        findings.append(_CGROUPS.failure(place, text, fix))
    else:
        findings.append(_cgroups(place, found))
    try:
        config = await SlurmCommands(float(options.timeout)).config()
    except SlurmError as error:
        fix = (
            "install Slurm's client and munge, let podgpu's PATH contain scontrol, and check that "
            "slurmctld runs"
        )
        return [*findings, _SCONTROL.failure("scontrol", str(error), fix)]
    version = setting(config, "SLURM_VERSION")
    name = setting(config, "ClusterName")
    findings.append(_SCONTROL.ok("scontrol", f"Slurm {version}, cluster {name}"))
    return [*findings, _cluster(config)]


def _cgroups(place: str, found: JobCgroups) -> Finding:
    if not found.found:
        return _CGROUPS.warning(
            place,
            f"Slurm has no cgroups of version {found.version} here: no job has run since the node "
            "started, or jobs are tracked without cgroups",
            "set ProctrackType=proctrack/cgroup in slurm.conf",
        )
    return _CGROUPS.ok(place, f"version {found.version}, {len(found.jobs)} jobs")


def _cluster(config: str) -> Finding:
    place = "slurm.conf"
    if setting(config, "ProctrackType") != "proctrack/cgroup":
        return _CLUSTER.failure(
            place,
            "jobs have no cgroups, so podgpu finds none",
            "set ProctrackType=proctrack/cgroup in slurm.conf",
        )
    if "CONTAIN" not in setting(config, "PrologFlags").upper():
        return _CLUSTER.warning(
            place,
            "an allocation has no cgroup before its first step: a GPU that salloc holds looks free",
            "set PrologFlags=Contain in slurm.conf",
        )
    if setting(config, "AccountingStorageType") == _NO_ACCOUNTING:
        return _CLUSTER.warning(
            place,
            "there is no accounting: an account is what the user writes with --account",
            "set AccountingStorageType=accounting_storage/slurmdbd if reports by account matter",
        )
    return _CLUSTER.ok(place, "cgroups, PrologFlags and accounting are set")
