"""A page can be parsed for any names of pods, boards and readings, and any page options."""

import re
from dataclasses import replace
from typing import get_args

from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.exposition.options import Inline, LabelForm, PageOptions, Sharing
from pipeline.exposition.text_format import Format
from pipeline.fields import LABELS, FieldPlan, LabelRow
from pipeline.model import NS, Attribution, DeviceUsage, Pod, PodInfo, PodsReplaced, Snapshot
from tests.pipeline.exposition.pages import context, parsed, rendered
from tests.support.examples import examples
from tests.support.nodes import (
    Node,
    at,
    claims,
    dra_claim,
    dra_names,
    every_field,
    gpu,
    kubelet_claim,
    mig,
    uuid_of,
)
from tests.support.usage import account, used, with_usage

FIELDS = {"memory_used_bytes", "xid_last", "gpu_up", "xid_errors", "clock_events_in_window"}
TEXTS = st.one_of(st.text(max_size=6), st.sampled_from(['"', "\\", "\n", "\0", "\ud800"]))
WORDS = ("gpu", "UUID", "uuid", "pod", "pod_name", "xid", "err_code", "Hostname", "vgpu", "1", "")
KEYS = st.one_of(st.text("ab_-/.0", max_size=3), st.sampled_from(WORDS), TEXTS)
PAIRS = st.dictionaries(KEYS, TEXTS, max_size=5).map(lambda pairs: tuple(sorted(pairs.items())))
FACTS = st.dictionaries(st.sampled_from([field.name for field in LABELS]), TEXTS, max_size=4)
ROWS = st.lists(st.builds(LabelRow, KEYS, st.sampled_from([f.name for f in LABELS])), max_size=4)
INLINE = st.lists(st.sampled_from(get_args(Inline)), unique=True).map(tuple)
OPTIONS = st.builds(
    PageOptions,
    labels=st.sampled_from(get_args(LabelForm)),
    inline=INLINE,
    containers=st.booleans(),
    hostname=st.booleans(),
    replace_model_blanks=st.booleans(),
    pod_label_prefix=st.sampled_from(["label_", "", "pod_", "annotation_", "g"]),
    sharing=st.sampled_from(get_args(Sharing)),
    mig_readings=st.sampled_from(["auto", "gpu", "instances", "both"]),
)
LINES = {"info": 3, "claims": 4, "copies": 8}
"""Lines of one field: two pods hold a GPU, two a MIG instance by ResourceClaims, and one a GPU.

The used memory of the MIG instance and of the last GPU has a line for the device too."""
UNKNOWN = 3
"""Lines of holders whose own memory is unknown if there are no usage accounts."""
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="(?:[^"\\]|\\.)*"(?:,|$)')


def snapshot(
    names: tuple[str, str, str],
    pairs: tuple[tuple[str, str], ...],
    facts: dict[str, str],
    annotations: tuple[tuple[str, str], ...],
    *,
    has_usage: bool,
) -> Snapshot:
    known_facts = tuple(sorted(facts.items()))
    first = replace(gpu(0), facts=known_facts, model=names[1])
    devices = [first, replace(mig(first, 1), facts=known_facts), gpu(1)]
    node = Node()
    node.has(*devices)
    infos = [
        PodInfo(f"u-{name}", "ml", name, names[0], labels=pairs, annotations=annotations)
        for name in ("a", "b")
    ]
    node.say(PodsReplaced(tuple(Pod(i, at(-60)) for i in infos), 300 * NS), "pods", "pods")
    kubelet_claims = [
        kubelet_claim("a", f"{uuid_of(0)}::1", f"{uuid_of(0)}::2", container=names[2]),
        kubelet_claim("b", f"{uuid_of(0)}::3"),
        kubelet_claim("b", uuid_of(1), container=names[2]),
        dra_claim("a", f"c{names[0]}", f"x{names[1]}"),
        dra_claim("b", f"c{names[2]}", f"x{names[1]}"),
    ]
    node.say(dra_names({f"x{names[1]}": devices[1].uuid}), "pods", "pods")
    node.say(claims(*kubelet_claims), "kubelet", "podresources")
    node.reads(*(found for found in every_field(devices) if found.field in FIELDS))
    found = node.snapshot()
    return (
        with_usage(found, *map(_account, found.layout.attributions.values()))
        if has_usage
        else found
    )


def _account(attribution: Attribution) -> DeviceUsage:
    subjects = [holder.subject for holder in attribution.holders]
    containers = [
        used(one.pod, container=one.container, uid=one.uid, memory=0, recent=0) for one in subjects
    ]
    return account(attribution.device, *containers)


SNAPSHOTS = st.builds(
    snapshot, st.tuples(TEXTS, TEXTS, TEXTS), PAIRS, FACTS, PAIRS, has_usage=st.booleans()
)


@given(SNAPSHOTS, ROWS, OPTIONS)
@settings(max_examples=examples(50), deadline=None)
def test_every_line_is_a_sample_without_duplicate_labels(
    shown: Snapshot, rows: list[LabelRow], options: PageOptions
) -> None:
    ctx = context()
    ctx.plan = FieldPlan((f.name for f in FieldPlan.everything().fields), labels=rows)
    chosen = {name: getattr(options, name) for name in PageOptions.__struct_fields__}
    pages = [rendered(shown, form, ctx=ctx, **chosen) for form in Format]
    series = [parsed(page, form) for page, form in zip(pages, Format, strict=True)]
    assert series[0] == series[1]
    for line in pages[0].decode().split("\n")[:-1]:
        if not line.startswith("#") and "{" in line:
            inside = line[line.index("{") + 1 : line.rindex("}")]
            found = LABEL.findall(inside)
            assert LABEL.sub("", inside) == ""
            assert len(set(found)) == len(found) > 0
    names = {"DCGM_FI_DEV_FB_USED", "dcgm_fb_used"}
    memory = [labels for name, labels in series[0] if name in names]
    unknown = UNKNOWN if options.sharing == "copies" and shown.usage is None else 0
    assert len(memory) == (LINES[options.sharing] - unknown if options.containers else 3)
