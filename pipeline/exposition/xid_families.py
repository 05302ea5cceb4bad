"""What XID codes mean: two labels of the last error, and the family `podgpu_xid_info`.

`podgpu_xid_info` has one series for each code that occurred, and none for codes whose counters are
still 0. So the counters keep their labels, and a query that needs the text joins it.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from pipeline.exposition.naming import PageNaming
from pipeline.exposition.text_format import Format, header, labels
from pipeline.fields.xid_catalogue import XIDS
from pipeline.model import Layout, Snapshot, Usage

UNKNOWN: Final = "Unknown Error"
NO_ERROR: Final = "No Error"

XID_INFO: Final = (
    "podgpu_xid_info",
    "XID codes that occurred on this node, with what they mean and what NVIDIA advises; always 1.",
)

_CODE: Final = re.compile("[0-9]{1,9}")
_SEEN: Final = "xid_last_seen_timestamp_seconds"


def xid_labels(code: bytes) -> bytes:
    """Return the end of a sample line for an XID code: its two labels, and the code as value.

    Args:
        code: the code as text. A value that was read from another page may have the form `79.0`.
    """
    code = code.removesuffix(b".0")
    known = XIDS.get(int(code)) if code.isdigit() else None
    text = NO_ERROR if code == b"0" else UNKNOWN if known is None else known.meaning
    return b',err_code="%b",err_msg="%b"} %b' % (code, text.encode(), code)


class XidInfo:
    """Renders `podgpu_xid_info` when the codes that occurred change.

    Args:
        naming: label names, and which optional labels to add.
    """

    def __init__(self, naming: PageNaming) -> None:
        self._naming = naming
        self._layout: Layout | None = None
        self._usage: Usage | None = None
        self._of_layout: frozenset[int] = frozenset()
        self._codes: frozenset[int] = frozenset()
        self._lines = b""

    def body(self, form: Format, snapshot: Snapshot) -> bytes:
        """Return the lines of the family; empty if no error occurred."""
        layout, usage = snapshot.layout, snapshot.usage
        if layout is not self._layout or usage is not self._usage:
            if layout is not self._layout:
                self._of_layout = frozenset(_seen(layout))
            self._layout, self._usage = layout, usage
            codes = self._of_layout.union(_accounted(usage))
            if codes != self._codes:
                self._codes, self._lines = codes, b"".join(self._render(sorted(codes)))
        return self._lines and header(form, XID_INFO[0], "gauge", XID_INFO[1]) + self._lines

    def _render(self, codes: Iterable[int]) -> Iterator[bytes]:
        for code in codes:
            known = XIDS.get(code)
            pairs = (
                ("xid", str(code)),
                ("meaning", known.meaning if known is not None else ""),
                ("action", known.action if known is not None else "unknown"),
                *self._naming.on_node,
            )
            yield b"%b{%b} 1\n" % (XID_INFO[0].encode(), labels(pairs))


def _seen(layout: Layout) -> Iterator[int]:
    """Yield the codes of the errors that a source reports."""
    for series in layout.series:
        if series.field == _SEEN:
            yield from (
                int(text) for name, text in series.attrs if name == "xid" and _CODE.fullmatch(text)
            )


def _accounted(usage: Usage | None) -> Iterator[int]:
    """Yield the codes of the errors in the containers' accounts."""
    for account in usage.devices.values() if usage is not None else ():
        for used in account.containers:
            yield from (code for code, _ in used.xids)
