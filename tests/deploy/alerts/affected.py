"""Alerts about an XID error of the hardware for each container, job or pod that it affects."""

from collections.abc import Mapping

from pipeline.fields.xid_catalogue import XIDS as CATALOGUE
from tests.deploy.alerts.case import JOB, NODE, PODLESS, UUID, Case, device, gpu
from tests.deploy.alerts.xids import BEGUN, SEARCH, SEEN, TRAINING, VICTIM, meaning, victim

AFFECTED: Mapping[str, tuple[Case, ...]] = {
    "PodgpuXidAffectedPod": (
        Case(
            "a lost GPU that one pod held",
            {gpu(SEEN, xid="79"): "_x10 600x90", victim("79"): BEGUN, **meaning("79")},
            15,
            [device(xid="79", **TRAINING)],
            f"XID 79 of GPU 0 of {NODE} affects ml/train-0",
            f"Seen 5m 0s ago in {UUID}, which container main held or used then. "
            f"{CATALOGUE[79].meaning}. The cause is the GPU or its links, not the program.",
            resolved=20,
        ),
        Case(
            "a job",
            {gpu(SEEN, xid="79"): "_x10 600x90", gpu(VICTIM, **JOB, xid="79"): BEGUN},
            15,
            [device(xid="79", hpc_job="4711")],
            f"XID 79 of GPU 0 of {NODE} affects job 4711",
            f"Seen 5m 0s ago in {UUID}, which job 4711 held or used then. "
            "The cause is the GPU or its links, not the program.",
        ),
        Case(
            "a container without a pod",
            {gpu(SEEN, xid="79"): "_x10 600x90", gpu(VICTIM, **PODLESS, xid="79"): BEGUN},
            15,
            [device(xid="79", container="lab-web-1")],
            f"XID 79 of GPU 0 of {NODE} affects container lab-web-1",
            f"Seen 5m 0s ago in {UUID}, which container lab-web-1 held or used then. "
            "The cause is the GPU or its links, not the program.",
        ),
        Case(
            "each of two teams that share the GPU",
            {
                gpu(SEEN, xid="94"): "_x10 600x90",
                victim("94"): BEGUN,
                victim("94", SEARCH): BEGUN,
            },
            15,
            [device(xid="94", **TRAINING), device(xid="94", **SEARCH)],
        ),
        Case(
            "a pod that came after an error of the links",
            {
                gpu(SEEN, "train-1", xid="74"): "_x10 600x90",
                victim("74", SEARCH): "_x10 1x2 stale",
            },
            15,
            [device(xid="74", **SEARCH)],
        ),
        Case(
            "a pod that had this error before, and one that has it now",
            {
                gpu(SEEN, xid="94"): "_x25 1500x14 2400x60",
                victim("94"): "_x25 1x90",
                victim("94", SEARCH): "_x40 1x60",
            },
            49,
            [device(xid="94", **SEARCH)],
        ),
        Case("no affected container is known", {gpu(SEEN, xid="79"): "_x10 600x90"}, 15),
        Case(
            "a program's fault",
            {gpu(SEEN, xid="31"): "_x10 600x90", victim("31"): BEGUN},
            15,
        ),
    ),
}
