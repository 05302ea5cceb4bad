"""Whether the list of metrics can be read, and which fields it asks for."""

import asyncio
import os
from typing import Final

from config.schema import Counters
from pipeline.base.errors import ApiError, TransientError
from pipeline.component.findings import Finding
from pipeline.counters.list_source import ListUnavailableError, origin_of
from pipeline.counters.plan_builder import default_plan, planned
from pipeline.diagnostics.api_permissions import FORBIDDEN, NOT_FOUND, fix_for
from pipeline.diagnostics.check_table import CHECKS
from pipeline.diagnostics.context import DoctorContext
from pipeline.fields import FieldPlan

_SECTION: Final = "counters"
_MAX_LISTED: Final = 3
_LIST: Final = "give the path of a list such as default-counters.csv"
_FILE_FIXES: Final = (
    (
        "permission denied",
        f"let uid {os.geteuid()} read the file, which is there, or run podgpu as root",
    ),
    ("no such file", "mount the folder of the file"),
    ("replaced outside", "mount the folder of the file instead of the file"),
)


async def examine(setting: Counters, ctx: DoctorContext) -> list[Finding]:
    """Check `counters`."""
    check = CHECKS["counters"]
    origin = origin_of(setting, ctx.kube)
    if origin is None:
        return [check.ok(_SECTION, "no list: podgpu's usual fields")]
    try:
        reading = await asyncio.to_thread(planned, await origin.read(), setting)
    except ListUnavailableError as error:
        report = check.failure if origin.vital else check.warning
        return [report(origin.place, str(error), _fix_for(setting, error))]
    if reading.plan is None:
        return [
            check.failure(
                origin.place,
                "no row of it can be used",
                "write rows such as those of default-counters.csv: field, type, help",
            )
        ]
    if reading.complaints:
        told = "; ".join(str(each) for each in reading.complaints[:_MAX_LISTED])
        saw = f"{len(reading.complaints)} rows are left out: {told}"
        return [check.warning(origin.place, saw, "mend or remove these rows")]
    return [check.ok(origin.place, f"{len(reading.plan.fields)} fields")]


def _fix_for(setting: Counters, error: ListUnavailableError) -> str:
    if not setting.configmap:
        return next((mend for told, mend in _FILE_FIXES if told in str(error)), _LIST)
    namespace, _, name = setting.configmap.partition(":")
    refused = error.__cause__
    if isinstance(refused, ApiError) and refused.status in {FORBIDDEN, NOT_FOUND}:
        return (
            f"give the service account a Role in {namespace} with verbs [get] on configmaps, "
            f'resourceNames ["{name}"], or make that ConfigMap'
        )
    if isinstance(refused, TransientError):
        return fix_for(refused)
    return "see that the API server answers, and that the list stands under the key metrics"


async def requested_plan(ctx: DoctorContext) -> FieldPlan:
    """Return the plan that is in force, the usual one where the list can't be had."""
    setting = ctx.config.counters
    origin = origin_of(setting, ctx.kube)
    if origin is not None:
        try:
            reading = await asyncio.to_thread(planned, await origin.read(), setting)
        except ListUnavailableError:
            return default_plan(setting)
        if reading.plan is not None:
            return reading.plan
    return default_plan(setting)
