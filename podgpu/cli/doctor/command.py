"""Run `podgpu doctor`: select the checks, run them, and print the findings."""

import argparse
import asyncio
import logging
import os
import signal
import traceback
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

from config.errors import ConfigError
from pipeline.component.code_permissions import GIVE_BOTH, libraries
from pipeline.component.findings import FAILS, Check, Finding, exit_status
from pipeline.host.daemon_threads import DaemonExecutor
from podgpu.cli.doctor.config_selection import SeveralDaemonsError, configured
from podgpu.cli.shared_options import allowed_of
from podgpu.cli.terminal_text import EXIT_UNWRITTEN, put
from podgpu.doctor.report import Subject, as_json, as_text

_CONFIG: Final = Check("config", FAILS)

EXIT_BUG: Final = 3
"""Exit status if podgpu doctor itself fails. 0 to 2 are exit statuses of findings."""

_THREADS: Final = 16
_GRACE_SECONDS: Final = 30
"""Seconds after the sum of the time limits, after which SIGALRM ends the process."""
_SERVICE_ACCOUNT: Final = "the pod's service account"
_IN_CLUSTER: Final = "KUBERNETES_SERVICE_HOST"


def doctor(arguments: argparse.Namespace) -> int:
    """`podgpu doctor`: print all findings.

    Returns:
        0 without problems, 1 for warnings, 2 for failures, 3 if podgpu doctor itself fails or the
        findings cannot be written.
    """
    try:
        with _logging_disabled():
            check = _check_cluster if arguments.cluster else _check_node
            subject, findings = check(arguments)
        format_findings = as_json if arguments.json else as_text
        written = put(format_findings(subject, findings), "podgpu doctor: the findings")
        return exit_status(findings) if written else EXIT_UNWRITTEN
    except Exception:  # noqa: BLE001 - Python's exit status would be that of warnings
        traceback.print_exc()
        return EXIT_BUG


@contextmanager
def _logging_disabled() -> Iterator[None]:
    """Suppress log messages of components and libraries: the findings report the problems."""
    previous = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(previous)


def _check_node(arguments: argparse.Namespace) -> tuple[Subject, Sequence[Finding]]:
    from pipeline.diagnostics.context import REQUEST_TIMEOUT, DoctorContext
    from pipeline.kube.sessions import Sessions
    from podgpu.doctor.missing_parts import missing_parts
    from podgpu.doctor.node_checks import diagnose

    try:
        config, place = configured(arguments.config, arguments.words)
    except ConfigError as error:
        fix = "fix the problems listed; podgpu check reports the same"
        return Subject("", error.origin), [
            _CONFIG.failure(error.origin, problem.render(error.origin), fix)
            for problem in error.problems
        ]
    except SeveralDaemonsError as error:
        fix = "give the configuration of one as -c FILE, or stop the others"
        return Subject("", "/proc"), [_CONFIG.failure("/proc", str(error), fix)]
    allowed = allowed_of(arguments)
    sessions = Sessions(plugins=allowed.everything, request_timeout=REQUEST_TIMEOUT)
    ctx = DoctorContext(config, kube=sessions.session, allowed=allowed)
    # Libraries that may not be loaded. The kube checks cover kubeconfigs.
    findings = [
        _CONFIG.failure(place, f"{each.path}: {each.message}", f"{each.hint}; {GIVE_BOTH}")
        for each in libraries(config, allowed)
    ] or [_CONFIG.ok(place, f"valid: sources {len(config.sources)}, sinks {len(config.sinks)}")]
    findings += _run(diagnose(ctx), ctx.deadline)
    return Subject(ctx.node, place, missing_parts(ctx, findings)), findings


def _check_cluster(arguments: argparse.Namespace) -> tuple[Subject, Sequence[Finding]]:
    from pipeline.kube.sessions import Sessions
    from podgpu.doctor.cluster.cluster_diagnosis import SECONDS, diagnose
    from podgpu.doctor.cluster.object_fetcher import SERVER

    kubeconfig = arguments.kubeconfig or _kubeconfig(os.environ)
    if kubeconfig is None and _IN_CLUSTER not in os.environ:
        place = "--kubeconfig"
        observed = (
            "is missing, KUBECONFIG is not set, and podgpu runs in no pod with a service account"
        )
        fix = "give one: podgpu doctor --cluster --kubeconfig ~/.kube/config"
        return Subject("", place), [SERVER.failure(place, observed, fix)]
    # Plugins are allowed: the user who runs the command names the file, or sets the variable.
    kube = Sessions(plugins=True).session
    findings = _run(diagnose(kube, kubeconfig, arguments.namespace), SECONDS)
    return Subject("", str(kubeconfig or _SERVICE_ACCOUNT)), findings


def _kubeconfig(env: Mapping[str, str]) -> Path | None:
    """Return the first file of KUBECONFIG that exists, else its first entry; None if unset."""
    entries = [Path(each) for each in env.get("KUBECONFIG", "").split(os.pathsep) if each]
    return next((each for each in entries if os.path.lexists(each)), next(iter(entries), None))


def _run(checks: Coroutine[Any, Any, list[Finding]], seconds: float) -> list[Finding]:
    """Run the checks. If a call hangs in a thread, do not wait for that thread.

    Args:
        checks: coroutine that returns the findings.
        seconds: sum of the time limits. SIGALRM ends the process some time after that.
    """

    async def main() -> list[Finding]:
        # asyncio.run waits for the threads of the default executor, but not for daemon threads.
        asyncio.get_running_loop().set_default_executor(DaemonExecutor("doctor", _THREADS))
        return await checks

    with _end_on_signal(seconds + _GRACE_SECONDS):
        return asyncio.run(main())


@contextmanager
def _end_on_signal(seconds: float) -> Iterator[None]:
    """End the process immediately on SIGTERM, and by SIGALRM after some seconds.

    Python's own signal handlers would wait for the interpreter lock, which a library may hold
    forever while it is loaded. For process 1 of a container, the kernel delivers only signals that
    have a handler.
    """
    handler_now = _end if os.getpid() == 1 else signal.SIG_DFL
    previous = {each: signal.signal(each, handler_now) for each in (signal.SIGTERM, signal.SIGALRM)}
    left, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left)
        for each, handler in previous.items():
            if handler is not None:  # None: the handler was not installed by Python
                signal.signal(each, handler)


def _end(signum: int, _frame: FrameType | None) -> None:
    os._exit(128 + signum)
