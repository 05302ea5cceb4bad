"""Checks of a cluster, from a kubeconfig: `podgpu doctor --cluster`."""

from typing import Final

from pipeline.component.check import BOTH, FAILS, WARNS, Check

CHECKS: Final = (
    Check(
        "cluster.server",
        "the API server of the kubeconfig, and what it lets one list",
        "it can't be reached, or a list is refused: the checks that need it are skipped",
        "see address, credentials and rights of the kubeconfig; `view` and `get`, `list` on nodes "
        "are enough",
        BOTH,
        skips=False,
    ),
    Check(
        "cluster.daemonset",
        "podgpu's DaemonSet: its selector, affinity and tolerations against every node, what its "
        "pods wait for, and how far an update is",
        "it wants no pods or too few, they can't be made (quota, pod security), or don't become "
        "ready",
        "label the nodes or change `nodeSelector`; add the toleration that is named; mend what the "
        "event or the container's last end tells",
        BOTH,
    ),
    Check(
        "cluster.runtimeclass",
        "the RuntimeClass that the DaemonSet names",
        "there is no such object: no pod can be made",
        "install the GPU operator, or make a RuntimeClass with the handler of the container "
        "toolkit; or set `runtimeClassName` to none where that is the default runtime",
        FAILS,
    ),
    Check(
        "cluster.gpus",
        "capacity and allocatable GPU resources of every node that has GPUs by its labels",
        "a node offers no GPU to pods, or fewer than it has",
        "see that the device plugin or the DRA driver runs there, and the health of its devices",
        WARNS,
    ),
    Check(
        "cluster.servicemonitor",
        "podgpu's ServiceMonitors and PodMonitors: what they select, and the selectors of every "
        "Prometheus",
        "it leads to no page of podgpu's, or no Prometheus takes it: nothing is scraped",
        "set its selector, namespaceSelector and port to podgpu's; give it the labels that the "
        "Prometheus selects (`additionalLabels` of the chart), or the namespace those",
        WARNS,
    ),
    Check(
        "cluster.exporters",
        "pods of podgpu and dcgm-exporter on each node",
        "two exporters on one node: each GPU counts twice in a sum",
        "remove one of them, or keep their nodes apart by a label",
        WARNS,
    ),
    Check(
        "cluster.extender",
        "the Deployment of `podgpu extender`: its pods, and by SubjectAccessReviews whether its "
        "service account may list and watch nodes",
        "a verb is missing, which is named: it knows nothing of any node; or its pods don't become "
        "ready",
        "give its service account a ClusterRole with `list` and `watch` on nodes; see its pods' "
        "events and logs",
        BOTH,
    ),
    Check(
        "cluster.networkpolicy",
        "the NetworkPolicies that select the pods of `podgpu extender`, where it has no web config",
        "none does, or one lets everybody in: every pod of the cluster may ask it, and keep the "
        "scheduler waiting",
        "set `extender.networkPolicy.from` of the chart to the scheduler, and to whoever reads the "
        "extender's metrics",
        WARNS,
    ),
)
