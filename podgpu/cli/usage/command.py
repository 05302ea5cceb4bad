"""Run `podgpu usage`: read a ledger, archives or a server, and print a report or a list."""

import argparse
import os
from dataclasses import replace

from pipeline.base.clock import SystemClock
from pipeline.base.errors import PermanentError
from pipeline.ledger.reports import DeviceChoiceError, report_of_groups
from podgpu.cli.terminal_text import complain
from podgpu.cli.usage.found_ledger import found_ledger
from podgpu.cli.usage.ledger_report import print_ledger_usage
from podgpu.cli.usage.printed_report import print_report
from podgpu.cli.usage.request import Request, request_of


def usage(arguments: argparse.Namespace) -> int:
    """`podgpu usage`: print a report or a list of holdings; return the exit status.

    Raises:
        TransientError: the usage cannot be read now, or there is none for the time span.
        PermanentError: the arguments are invalid, or what is read is damaged or refused.
        ConfigError: the configuration that names the ledger, or the price file, is invalid.
    """
    request = request_of(arguments, SystemClock().now().wall_ns)
    try:
        if arguments.locations:
            return _print_archive_usage(arguments, request)
        if arguments.prometheus is not None:
            return _print_prometheus_usage(arguments, request)
        return print_ledger_usage(found_ledger(arguments), request)
    except DeviceChoiceError as error:
        raise PermanentError(f"--device: {error}") from error


def _print_archive_usage(arguments: argparse.Namespace, request: Request) -> int:
    from podgpu.cli.archive.extra import check_extra

    check_extra()
    # Imported here, because it needs the packages of an extra.
    from podgpu.cli.usage.archive_report import print_archive_usage

    return print_archive_usage(arguments, request)


def _print_prometheus_usage(arguments: argparse.Namespace, request: Request) -> int:
    # Imported here, because only this option needs it.
    from podgpu.cli.usage.prometheus.command import ReportSpan, prometheus_usage
    from podgpu.cli.usage.prometheus.server_access import server_of

    span = ReportSpan(
        request.start_ns,
        request.end_ns,
        request.now_ns,
        request.by,
        arguments.cluster_label,
        request.device,
    )
    found = prometheus_usage(server_of(arguments, os.environ), span, request.prices)
    for note in found.notes:
        complain(f"podgpu: {note}")
    by = replace(request.by, several_nodes=False)
    report = report_of_groups(found.window, by, request.prices, found.usage)
    return print_report(report, request, found.usage)
