"""Hypothesis strategies for everything that a recording can contain."""

from typing import get_args

from hypothesis import strategies as st

from pipeline.model import (
    NS,
    AdvertisedResource,
    Claim,
    ClaimsReplaced,
    ContainersReplaced,
    ContainerStarted,
    ContainerStopped,
    ContainerUsage,
    Device,
    DeviceAliasesReplaced,
    DeviceJobs,
    DevicesDiscovered,
    DeviceUsage,
    DeviceUse,
    Envelope,
    Event,
    Evidence,
    GpuProcess,
    Holding,
    Instant,
    JobsReplaced,
    Level,
    MigPlace,
    Origin,
    PartialRef,
    Pod,
    PodContainer,
    PodDeleted,
    PodInfo,
    PodsReplaced,
    PodUpserted,
    ProcessesSampled,
    ProcessList,
    ProcessUse,
    RawDeviceId,
    Reading,
    ResourceClaim,
    ResourcesAdvertised,
    RunningContainer,
    SamplesTaken,
    Scheme,
    SourceAdded,
    SourceLost,
    SourceRemoved,
    TopologyCard,
    TopologyPair,
    TopologyRead,
    TotalsRestored,
    XidReport,
    XidsReported,
)
from tests.support.nodes import at

# Text as it comes from file systems and pod lists: bytes that aren't UTF-8 become lone surrogates
# in Python.
texts = st.text(max_size=8) | st.sampled_from(["\udcff", "a\ud800b", "\u2028", "\0", '"\n\\'])
ns = st.integers()
instants = st.builds(Instant, ns, ns)
values = (
    st.integers()
    | st.floats(allow_nan=False)
    | st.sampled_from([0, 0.0, -0.0, 1, 1.0, 1 << 64, (1 << 64) - 1, -(1 << 63), 5e-324])
)
attrs = st.lists(st.tuples(texts, texts), max_size=3).map(tuple)
# Few devices and times, so that readings fall into the same groups.
few_times = st.sampled_from([at(0), at(1)]) | instants
readings = st.builds(
    Reading,
    st.sampled_from(["GPU-0", "GPU-1"]) | texts,
    st.sampled_from(["power_watts", "xid_errors"]) | texts,
    st.just(()) | attrs,
    values,
    st.none() | few_times,
    few_times,
    st.sampled_from([3 * NS, 30 * NS]) | ns,
)
processes = st.builds(
    GpuProcess,
    st.integers(0, 1 << 40),
    st.sampled_from(["compute", "graphics", "mps"]),
    st.none() | st.integers(0, 1 << 60),
)
process_lists = st.builds(ProcessList, texts, st.lists(processes).map(tuple), few_times, ns)
devices = st.builds(
    Device,
    texts,
    st.none() | st.integers(0, 1 << 40),
    st.none() | st.integers(0, 1 << 40),
    texts,
    texts,
    texts,
    st.none()
    | st.builds(
        MigPlace,
        texts,
        st.integers(0, 99),
        st.integers(0, 99),
        texts,
        st.none() | st.integers(0, 6),
        st.none() | st.integers(0, 7),
    ),
    st.just(()) | attrs,
)
refs = st.builds(PartialRef, texts, texts, texts, texts, texts)
raw_ids = st.builds(RawDeviceId, st.sampled_from(get_args(Scheme)), texts)
ids = st.lists(raw_ids, max_size=3).map(tuple)
all_claims = st.builds(
    Claim,
    refs,
    ids,
    st.none() | st.floats(allow_nan=False, allow_infinity=False),
    st.none() | instants,
    st.builds(Origin, st.sampled_from(Evidence), texts),
    texts,
    ids,
    st.booleans(),
    texts,
)
some_claims = st.lists(all_claims, max_size=2).map(tuple)
pairs = st.lists(st.tuples(texts, texts), max_size=2).map(tuple)
some_texts = st.lists(texts, max_size=2).map(tuple)
pods = st.builds(
    Pod,
    st.builds(PodInfo, texts, texts, texts, texts, texts, texts, texts, pairs, pairs),
    st.none() | instants,
    st.booleans(),
    texts,
    st.lists(
        st.builds(
            PodContainer,
            texts,
            st.sampled_from(["init", "sidecar", "app", "ephemeral"]),
            texts,
            st.none() | instants,
            st.booleans(),
        ),
        max_size=2,
    ).map(tuple),
    some_claims,
    st.booleans(),
    st.none() | some_texts,
    some_texts,
    st.lists(
        st.builds(
            ResourceClaim,
            texts,
            texts,
            st.booleans(),
            st.none() | instants,
            st.none() | instants,
            ids,
        ),
        max_size=2,
    ).map(tuple),
)
pod_infos = st.none() | st.builds(PodInfo, texts, texts, texts, labels=pairs)
containers = st.builds(
    RunningContainer,
    refs,
    st.none() | st.integers(0, 1 << 22),
    texts,
    st.none() | instants,
    some_claims,
    pod_infos,
)
numbers = st.none() | st.integers(0, 99)
cards = st.builds(
    TopologyCard,
    texts,
    numbers,
    texts,
    numbers,
    st.lists(texts, max_size=2).map(tuple),
    numbers,
    texts,
    numbers,
)
topology_pairs = st.builds(
    TopologyPair,
    texts,
    texts,
    st.none() | st.sampled_from(Level),
    numbers,
    st.none() | st.booleans(),
)
counts = st.none() | st.integers()
process_uses = st.builds(
    ProcessUse,
    st.integers(0, 1 << 40) | st.sampled_from([7, 8]),
    st.none() | st.integers(0, 99),
    st.none() | refs | st.just(PartialRef(uid="u")),
    st.sampled_from(["compute", "graphics", "mps", ""]),
    counts,
    counts,
)
device_uses = st.builds(
    DeviceUse,
    st.sampled_from(["GPU-0", "GPU-1"]) | texts,
    few_times,
    st.none() | few_times,
    st.lists(process_uses, max_size=3).map(tuple),
    counts,
    counts,
    counts,
    counts,
    ns,
    st.booleans(),
    st.booleans(),
)
xids = st.lists(st.tuples(ns, ns), max_size=2).map(tuple)
holdings = st.builds(
    Holding,
    texts,
    refs,
    pod_infos,
    texts,
    st.none() | st.sampled_from(Evidence),
    instants,
    st.none() | instants,
    *([ns] * 3),
    counts,
    counts,
    counts,
    st.integers(0, 1 << 100),
    ns,
    ns,
    counts,
    xids,
    ns,
)
container_usages = st.builds(
    ContainerUsage,
    refs,
    pod_infos,
    instants,
    st.none() | instants,
    counts,
    counts,
    ns,
    counts,
    xids,
    st.none() | holdings,
)
totals = st.builds(
    DeviceUsage,
    texts,
    instants,
    instants,
    st.lists(container_usages, max_size=2).map(tuple),
    *([counts] * 5),
    ns,
    ns,
    counts,
    counts,
    *([ns] * 3),
)
xid_reports = st.builds(
    XidReport, texts, texts, ns, instants, counts, texts, st.none() | refs | st.just(PartialRef())
)
events: st.SearchStrategy[Event] = st.one_of(
    st.builds(XidsReported, st.lists(xid_reports, max_size=3).map(tuple)),
    st.builds(TotalsRestored, st.lists(totals, max_size=2).map(tuple)),
    st.builds(DevicesDiscovered, st.lists(devices, max_size=4).map(tuple)),
    st.builds(
        SamplesTaken,
        st.lists(readings, max_size=12).map(tuple),
        st.lists(process_lists, max_size=3).map(tuple),
    ),
    st.builds(ProcessesSampled, st.lists(device_uses, max_size=3).map(tuple)),
    st.builds(ClaimsReplaced, st.lists(all_claims, max_size=4).map(tuple), ns, st.booleans()),
    st.builds(PodsReplaced, st.lists(pods, max_size=2).map(tuple), ns),
    st.builds(PodUpserted, pods),
    st.builds(PodDeleted, texts),
    st.builds(ContainersReplaced, st.lists(containers, max_size=2).map(tuple), ns),
    st.builds(ContainerStarted, containers),
    st.builds(ContainerStopped, texts),
    st.builds(
        DeviceAliasesReplaced,
        st.lists(st.tuples(raw_ids, texts), max_size=2).map(tuple),
        st.lists(st.tuples(raw_ids, st.none() | instants), max_size=2).map(tuple),
    ),
    st.builds(
        ResourcesAdvertised,
        st.lists(st.builds(AdvertisedResource, texts, ids), max_size=2).map(tuple),
        ns,
    ),
    st.builds(
        JobsReplaced,
        st.lists(
            st.builds(
                DeviceJobs,
                st.integers(0, 99),
                st.none() | st.integers(0, 15),
                st.lists(texts, max_size=2).map(tuple),
            ),
            max_size=2,
        ).map(tuple),
        ns,
    ),
    st.builds(
        TopologyRead,
        st.lists(cards, max_size=2).map(tuple),
        st.lists(topology_pairs, max_size=2).map(tuple),
    ),
    st.builds(
        SourceAdded, st.integers(0, 99), st.lists(st.sampled_from(["devices", "names"])).map(tuple)
    ),
    st.builds(SourceLost, texts),
    st.just(SourceRemoved()),
)
envelopes = st.builds(Envelope, texts, texts, st.integers(0, 1 << 60), instants, events)
