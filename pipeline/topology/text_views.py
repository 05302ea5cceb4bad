"""A topology as text: the matrix of `nvidia-smi topo -m`, the tree, and Graphviz."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from pipeline.model import Holder, owner_text
from pipeline.model.availability import Availability, CardState
from pipeline.model.bitmask import bits
from pipeline.model.topology_tree import SYMBOLS, Group, Node, Topology

_MOST_GROUPS: Final = 4
_MOST_HOLDERS: Final = 2
_STATES: Final[Mapping[CardState, str]] = {
    "held": "",
    "part": " in part",
    "absent": " absent",
}

LEGEND = """\
  X    = the GPU itself
  NV#  = # NVLinks, direct ones or through switches; NV? where their number is unknown
  PIX  = one PCIe switch between them, or one board
  PXB  = several PCIe switches, no host bridge
  PHB  = one PCIe host bridge
  NODE = several host bridges of one NUMA node
  SYS  = the link between NUMA nodes
  ?    = the driver gives no answer"""


def matrix(topology: Topology, *, legend: bool = True) -> str:
    """Return a matrix of the connections between GPUs, by the driver, and of their NUMA nodes."""
    count = len(topology.cards)
    names = [topology.name(number) for number in range(count)]
    rows = [["", *names, "NUMA"]]
    for i, card in enumerate(topology.cards):
        cells = [" X " if i == j else symbol(topology, i, j) for j in range(count)]
        numa = "N/A" if card.numa_node is None else str(card.numa_node)
        rows.append([names[i], *cells, numa])
    widths = [max(len(row[column]) for row in rows) for column in range(count + 2)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    if legend:
        lines += ["", "Legend:", "", LEGEND]
    return "\n".join(lines) + "\n"


def symbol(topology: Topology, i: int, j: int) -> str:
    """Return the cell of the matrix for two different GPUs, by their bit numbers.

    The cell shows the driver's report on this pair; in the tree the pair may be closer.
    """
    key = (i, j) if i < j else (j, i)
    nvlinks = topology.links[key].nvlinks
    if nvlinks:
        return f"NV{nvlinks}"
    answer = topology.answers.get(key)
    if answer is None:
        return "?"
    if nvlinks is None and answer.reachable:
        return "NV?"
    return "?" if answer.level is None else SYMBOLS[answer.level]


def tree(topology: Topology, availability: Availability | None = None) -> str:
    """Return the tree with the holders, followed by the NVLink groups.

    A chain of nodes with the same GPUs is one line, with the level of the closest node.
    """
    root = topology.root
    if root is None:
        return "no GPUs\n"
    lines = _branch(topology, availability, root, "", "")
    for domain in topology.domains:
        about = f" {domain.fabric}" if domain.fabric else ""
        lines.append(f"NVLink {domain.kind}{about}: {_about(topology, availability, domain)}")
    lines += [f"contradiction: {text}" for text in topology.contradictions.values()]
    return "\n".join(lines) + "\n"


def _branch(
    topology: Topology, availability: Availability | None, node: Node, first: str, further: str
) -> list[str]:
    if not node.mask & (node.mask - 1):
        return [first + _card(topology, availability, node.mask.bit_length() - 1)]
    lines = [f"{first}{SYMBOLS[node.level]}: {_about(topology, availability, node)}"]
    below = _below(node)
    for place, child in enumerate(below):
        last = place + 1 == len(below)
        start, rest = further + ("└─ " if last else "├─ "), further + ("   " if last else "│  ")
        if isinstance(child, Node):
            lines += _branch(topology, availability, child, start, rest)
        else:
            lines.append(start + _card(topology, availability, child))
    return lines


def _about(topology: Topology, availability: Availability | None, group: Group) -> str:
    text = topology.names(group.mask)
    if availability is not None:
        text += f", {availability.free_of(group).bit_count()} of {group.mask.bit_count()} free"
    return text


def _card(topology: Topology, availability: Availability | None, number: int) -> str:
    card = topology.cards[number]
    parts = [topology.name(number)]
    if card.pci_bus_id:
        parts.append(card.pci_bus_id)
    if availability is not None:
        parts.append("; ".join(_held_text(availability, number)))
    return "  ".join(parts)


def _held_text(availability: Availability, number: int) -> Iterator[str]:
    use = availability.cards[number]
    yield use.state
    own = availability.topology.cards[number].uuid
    places = {a.device.uuid: a.device.mig for a in use.attributions}
    for uuid, holder in use.holders:
        place = places[uuid]
        where = "" if uuid == own or place is None else f" on {place.profile or uuid}"
        yield _holder(holder) + where


def _holder(holder: Holder) -> str:
    subject = holder.subject
    pod = subject.pod or subject.uid or subject.container_id
    name = f"{subject.namespace}/{pod}" if subject.namespace else pod
    if subject.kind != "pod":
        name = owner_text(subject.namespace, subject.pod, subject.uid)
    elif subject.container:
        name += f" ({subject.container})"
    return name if holder.share in {None, 1} else f"{name} {holder.share:g}"


def held_summary(availability: Availability) -> str:
    """Return on one line which GPUs are not free, and who holds them.

    GPUs with the same holders are together: `GPU 0-2 by ml/train-0 (main), GPU 3 absent`. At
    most four such groups, and two holders of each, are named.
    """
    groups: dict[str, int] = {}
    for number, use in enumerate(availability.cards):
        if use.state != "free":
            text = f"{_STATES[use.state]}{_by(dict.fromkeys(_holder(h) for _, h in use.holders))}"
            groups[text] = groups.get(text, 0) | 1 << number
    names = availability.topology.names
    listed = [f"{names(mask)}{text}" for text, mask in list(groups.items())[:_MOST_GROUPS]]
    if rest := sum(list(groups.values())[_MOST_GROUPS:]):
        listed.append(f"{names(rest)} by others")
    return ", ".join(listed)


def _by(holders: Collection[str]) -> str:
    named = list(holders)[:_MOST_HOLDERS]
    if more := len(holders) - len(named):
        named.append(f"{more} more")
    return f" by {' and '.join(named)}" if named else ""


def dot(
    topology: Topology, availability: Availability | None = None, notes: Sequence[str] = ()
) -> str:
    """Return the tree and the NVLinks in the language of Graphviz; notes are above the graph."""
    lines = ["graph topology {", "  node [shape=box];"]
    if notes:
        lines.append(f"  labelloc=t; label={_quoted(chr(10).join(notes))};")
    for number in range(len(topology.cards)):
        label = topology.name(number)
        style = ""
        if availability is not None:
            label = "\n".join([label, *_held_text(availability, number)])
            style = "" if availability.free >> number & 1 else ", style=filled"
        lines.append(f"  g{number} [label={_quoted(label)}{style}];")
    if topology.root is not None and len(topology.cards) > 1:
        lines += _edges(topology.root)
    for (i, j), link in sorted(topology.links.items()):
        if link.nvlinks:
            lines.append(f'  g{i} -- g{j} [label="NV{link.nvlinks}", constraint=false];')
    return "\n".join([*lines, "}"]) + "\n"


def _edges(node: Node) -> list[str]:
    name = f"{node.level.name.lower()}{node.number}"
    lines = [f"  {name} [label={_quoted(SYMBOLS[node.level])}, shape=ellipse];"]
    for child in _below(node):
        if isinstance(child, Node):
            lines += _edges(child)
            lines.append(f"  {name} -- {child.level.name.lower()}{child.number};")
        else:
            lines.append(f"  {name} -- g{child};")
    return lines


def _below(node: Node) -> list[Node | int]:
    """Return what is below a node: nodes of several GPUs, and single GPUs as bit numbers."""
    single = [n.mask.bit_length() - 1 if n.mask.bit_count() == 1 else n for n in node.branches]
    return single or list(bits(node.mask))


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
