"""Answers of scontrol of Slurm 22.05, as recorded, and the cgroups of jobs."""

from pathlib import Path

NODE = "node1"

JOB = (
    "JobId={job} JobName={name} UserId={user} GroupId=root(0) MCS_label=N/A Priority=4294901756 "
    "Nice=0 Account={account} QOS=(null) JobState={state} Reason=None Dependency=(null) Requeue=1 "
    "Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0 DerivedExitCode=0:0 RunTime=00:00:02 "
    "TimeLimit=UNLIMITED TimeMin=N/A SubmitTime=2026-11-30T20:45:10 "
    "EligibleTime=2026-11-30T20:45:11 AccrueTime=2026-11-30T20:45:11 StartTime={started} "
    "EndTime=Unknown Deadline=N/A SuspendTime=None SecsPreSuspend=0 "
    "LastSchedEval=2026-11-30T20:45:11 Scheduler=Main Partition={partition} "
    "AllocNode:Sid=localhost:19667 ReqNodeList=(null) ExcNodeList=(null) NodeList=node1 "
    "BatchHost=node1 NumNodes=1 NumCPUs=1 "
    "NumTasks=1 CPUs/Task=1 ReqB:S:C:T=0:0:*:* TRES=cpu=1,node=1,billing=1 Socks/Node=* "
    "NtasksPerN:B:S:C=0:0:*:* CoreSpec=* JOB_GRES={wanted}   {allocated} MinCPUsNode=1 "
    "MinMemoryNode=0 MinTmpDiskNode=0 Features=(null) DelayBoot=00:00:00 OverSubscribe=YES "
    "Contiguous=0 Licenses=(null) Network=(null) Command={command} WorkDir=/tmp {comment}"
    "StdErr=/dev/null StdIn=/dev/null StdOut=/dev/null Power= TresPerNode=gres:{wanted} \n"
)
STARTED = 1796071511
"""The start of the recorded jobs in Unix seconds: 2026-11-30T20:45:11."""


def job(
    number: str,
    gres: str = "gpu:1(IDX:0)",
    *,
    nodes: str = NODE,
    name: str = "arr",
    user: str = "anna(1000)",
    account: str = "chem",
    state: str = "RUNNING",
    started: str = "2026-11-30T20:45:11",
    command: str = "(null)",
    comment: str = "",
    partition: str = "batch",
    allocated: str | None = None,
) -> str:
    """Return the answer to `scontrol --oneliner --details show job`."""
    return JOB.format(
        job=number,
        name=name,
        user=user,
        account=account,
        state=state,
        started=started,
        wanted="gpu:1",
        command=command,
        comment=f"Comment={comment} " if comment else "",
        partition=partition,
        allocated=f"Nodes={nodes} CPU_IDs=3 Mem=0 GRES={gres}" if allocated is None else allocated,
    )


NODE_ANSWER = (
    "NodeName=node1 Arch=x86_64 CoresPerSocket=8  CPUAlloc=0 CPUEfctv=8 CPUTot=8 CPULoad=2.86 "
    "AvailableFeatures=(null) ActiveFeatures=(null) Gres=gpu:4,shard:16 NodeAddr=127.0.0.1 "
    "NodeHostName=node1 Version=22.05.8 State=IDLE Partitions=batch \n"
)

CONFIG = """\
Configuration data as of 2026-11-30T20:45:11
AccountingStorageType   = accounting_storage/slurmdbd
ClusterName             = lab
ProctrackType           = proctrack/cgroup
PrologFlags             = Alloc,Contain
SLURM_VERSION           = 22.05.8

Slurmctld(primary) at vm is UP
"""


def version_1(root: Path, node: str = "_node1") -> Path:
    """Make the cgroups of a machine with version 1, and return the folder of the node."""
    folder = root / "freezer" / f"slurm{node}"
    folder.mkdir(parents=True, exist_ok=True)
    (root / "devices").mkdir(exist_ok=True)
    return folder


def version_2(root: Path, node: str = "") -> Path:
    """Make the cgroups of a machine with version 2, and return the folder of the node."""
    folder = root / "system.slice" / f"{node}slurmstepd.scope"
    folder.mkdir(parents=True, exist_ok=True)
    (root / "cgroup.controllers").write_text("cpu memory\n")
    (folder / "system").mkdir(exist_ok=True)
    return folder


def start(folder: Path, number: str, *, processes: str = "4711\n", user: str = "uid_1000") -> Path:
    """Make the cgroup of a job with one step."""
    group = folder / user / f"job_{number}" if user else folder / f"job_{number}"
    step = group / "step_0"
    step.mkdir(parents=True)
    (step / "cgroup.procs").write_text(processes)
    (group / "cgroup.procs").write_text("")
    return group


def end(group: Path) -> None:
    """Remove the cgroup of a job."""
    for path in sorted(group.rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    group.rmdir()


PROGRAM = """\
#!/bin/sh
# Answers as scontrol and squeue do, from the files of a folder; `sleep` makes it hang.
echo "$* $TZ" >> {folder}/calls
echo $$ >> {folder}/pids
[ -e {folder}/sleep ] && sleep 60
for word; do last=$word; done
case "$*" in
    *"show config"*) answer=config ;;
    *"show node"*) answer=node ;;
    *"%A %i"*) answer=places ;;
    *"%j"*) answer=name.$3 ;;
    *) answer=job.$last ;;
esac
[ -e {folder}/sleep.$answer ] && sleep 60
if [ -e {folder}/down ]; then
    echo "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
    exit 1
elif [ -e {folder}/$answer ]; then
    cat {folder}/$answer
else
    echo "slurm_load_jobs error: Invalid job id specified"
    exit 1
fi
"""


def scontrol(folder: Path) -> Path:
    """Write scontrol, squeue and their answers, and return the folder for the search path."""
    programs = folder / "bin"
    programs.mkdir(parents=True, exist_ok=True)
    for name in ("scontrol", "squeue"):
        (programs / name).write_text(PROGRAM.format(folder=folder))
        (programs / name).chmod(0o755)
    (folder / "config").write_text(CONFIG)
    (folder / "node").write_text(NODE_ANSWER)
    return programs
