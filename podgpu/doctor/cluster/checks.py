"""Checks of a cluster: `podgpu doctor --cluster`."""

from typing import Final

from pipeline.component.check import BOTH, FAILS, WARNS, Check, checks_by_id

CHECKS: Final = checks_by_id(
    Check(
        "cluster.server",
        "the API server of the kubeconfig, and which objects it allows to list",
        "it cannot be reached, or it refuses a list: the checks that need the list are skipped",
        "check address, credentials and permissions of the kubeconfig; `view`, and `get` and "
        "`list` on nodes, are enough",
        BOTH,
        skips=False,
    ),
    Check(
        "cluster.daemonset",
        "podgpu's DaemonSet: which nodes with GPUs have no pod of it and why (selector, affinity, "
        "tolerations), why its pods are not ready, and the progress of an update",
        "it wants no pods or too few, its pods cannot be created (quota, pod security), or they do "
        "not become ready",
        "label the nodes or change `nodeSelector`; add the toleration that is named; fix what the "
        "event or the container's last termination reports",
        BOTH,
    ),
    Check(
        "cluster.runtimeclass",
        "the RuntimeClass that the DaemonSet names",
        "the RuntimeClass does not exist: no pod can be created",
        "install the GPU operator, or create a RuntimeClass with the handler of the container "
        "toolkit; if that is the default runtime, leave `runtimeClassName` empty",
        FAILS,
    ),
    Check(
        "cluster.gpus",
        "capacity and allocatable GPU resources of every node whose labels show GPUs",
        "a node offers no GPU to pods, or fewer than it has",
        "check that the device plugin or the DRA driver runs there, and the health of its devices",
        WARNS,
    ),
    Check(
        "cluster.servicemonitor",
        "podgpu's ServiceMonitors and PodMonitors: what they select, and the selectors of every "
        "Prometheus",
        "it selects no metrics page of podgpu, or no Prometheus selects it: nothing is scraped",
        "set its selector, namespaceSelector and port to those of podgpu; give it, or its "
        "namespace, the labels that the Prometheus selects (`additionalLabels` of the chart)",
        WARNS,
    ),
    Check(
        "cluster.exporters",
        "pods of podgpu and dcgm-exporter on each node",
        "two exporters run on one node: sums count each GPU twice",
        "remove one of them, or run them on different nodes by a label",
        WARNS,
    ),
    Check(
        "cluster.extender",
        "the Deployment of `podgpu extender`: its pods, and by SubjectAccessReviews whether its "
        "service account may list and watch nodes",
        "a permission is missing: the extender knows no node; or its pods do not become ready",
        "give its service account a ClusterRole with `list` and `watch` on nodes; read the events "
        "and logs of its pods",
        BOTH,
    ),
    Check(
        "cluster.networkpolicy",
        "the NetworkPolicies that select the pods of `podgpu extender`, if it has no web "
        "configuration file",
        "no policy selects them, or one allows everyone: every pod of the cluster may query the "
        "extender, and can delay the scheduler",
        "set `extender.networkPolicy.from` of the chart to the scheduler and the readers of the "
        "extender's metrics",
        WARNS,
    ),
)
