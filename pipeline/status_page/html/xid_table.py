"""Render the table of XID errors."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from pipeline.fields.xid_catalogue import XIDS
from pipeline.status_page.display_text import amount, gpu_name, span
from pipeline.status_page.fault_texts import UNLISTED_XID, UNLISTED_XID_ADVICE
from pipeline.status_page.html.elements import cell, row, shown, table, text
from pipeline.status_page.status_document import GpuStatus, XidStatus

_COLUMNS: Final = ("GPU", "XID", "Meaning", "Advice", "Errors", "Last")


def xids(gpus: Sequence[GpuStatus], now: datetime) -> str:
    """Return the section with the XID errors of all GPUs; empty without any.

    Args:
        gpus: the GPUs.
        now: the time of the document.
    """
    bodies = ["".join(_row(gpu, one, now) for one in gpu.xids) + _more(gpu) for gpu in gpus]
    if not any(bodies):
        return ""
    shown_bodies = [body for body in bodies if body]
    return f'<h2 id="xids">XID errors</h2>\n{table("xids", "xids", _COLUMNS, *shown_bodies)}'


def _row(gpu: GpuStatus, one: XidStatus, now: datetime) -> str:
    known = XIDS.get(one.code)
    last = (
        f'<time datetime="{one.last_seen.isoformat()}">'
        f"{span(max((now - one.last_seen).total_seconds(), 0))} ago</time>"
        if one.last_seen is not None
        else shown(None, str)
    )
    return row(
        f"<b>{text(gpu_name(gpu))}</b>",
        cell(str(one.code), "num", "XID")
        + cell(text(one.meaning or UNLISTED_XID), "wide", "Meaning")
        + cell(text(UNLISTED_XID_ADVICE if known is None else known.advice), "wide", "Advice")
        + cell(shown(one.errors, amount), "num", "Errors")
        + cell(last, "num", "Last"),
    )


def _more(gpu: GpuStatus) -> str:
    if not gpu.xids_left_out:
        return ""
    note = f'<span class="soft">and {gpu.xids_left_out} more codes</span>'
    return row(f"<b>{text(gpu_name(gpu))}</b>", cell(note, "wide"))
