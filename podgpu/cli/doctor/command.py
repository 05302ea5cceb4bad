"""The command: what is looked at, and what is printed."""

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
from config.schema import Config
from pipeline.component.code_permissions import GIVE_BOTH, Allowed, libraries
from pipeline.component.findings import Finding, exit_status
from pipeline.diagnostics.check_table import CHECKS
from pipeline.host.daemon_threads import DaemonExecutor
from podgpu.cli.code_permission_options import allowed_of
from podgpu.cli.doctor.config_selection import configured
from podgpu.cli.output import EXIT_UNWRITTEN, put
from podgpu.doctor.report import Subject, as_json, as_text

EXIT_BUG: Final = 3
"""Other than what findings come to: nothing was found out."""

_THREADS: Final = 16
_SLACK: Final = 30
"""Seconds beyond all limits after which the doctor is ended by force."""
_ACCOUNT: Final = "the pod's service account"
_IN_CLUSTER: Final = "KUBERNETES_SERVICE_HOST"


def doctor(arguments: argparse.Namespace) -> int:
    """`podgpu doctor`: print all findings; return 0, 1 for warnings, 2 for failures, 3 for bugs."""
    try:
        with _silence():
            look = _of_cluster if arguments.cluster else _of_node
            subject, findings = look(arguments)
        show = as_json if arguments.json else as_text
        written = put(show(subject, findings), "podgpu doctor: what it found")
        return exit_status(findings) if written else EXIT_UNWRITTEN
    except Exception:  # noqa: BLE001 - its usual status is that of warnings
        traceback.print_exc()
        return EXIT_BUG


@contextmanager
def _silence() -> Iterator[None]:
    """What a component or a library logs on the way is in a finding."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def _of_node(arguments: argparse.Namespace) -> tuple[Subject, Sequence[Finding]]:
    from pipeline.diagnostics.api_timeout import with_timeout
    from pipeline.diagnostics.context import DoctorContext
    from pipeline.kube.sessions import Sessions
    from podgpu.doctor.node_checks import diagnose

    try:
        config, place = configured(arguments.config, arguments.words)
    except ConfigError as error:
        return Subject("", error.origin), _wrong(error)
    allowed = allowed_of(arguments)
    kube = with_timeout(Sessions(plugins=allowed.everything).session)
    ctx = DoctorContext(config, kube=kube, allowed=allowed)
    findings = _refused(config, place, allowed) or [
        CHECKS["config"].ok(place, _summary(len(config.sources), len(config.sinks)))
    ]
    findings += _run(diagnose(ctx), ctx.deadline)
    return Subject(ctx.node, place), findings


def _wrong(error: ConfigError) -> list[Finding]:
    mend = "mend what is named; podgpu check tells the same"
    check = CHECKS["config"]
    texts = [problem.render(error.origin) for problem in error.problems]
    return [check.failure(error.origin, text, mend) for text in texts]


def _refused(config: Config, place: str, allowed: Allowed) -> list[Finding]:
    """Return what podgpu would not load; a kubeconfig is looked at by whoever needs it."""
    check = CHECKS["config"]
    return [
        check.failure(place, f"{each.path}: {each.message}", f"{each.hint}; {GIVE_BOTH}")
        for each in libraries(config, allowed)
    ]


def _summary(sources: int, sinks: int) -> str:
    return f"good: sources {sources}, sinks {sinks}"


def _of_cluster(arguments: argparse.Namespace) -> tuple[Subject, Sequence[Finding]]:
    from pipeline.kube.sessions import Sessions
    from podgpu.doctor.cluster.cluster_checks import SECONDS, diagnose

    kubeconfig = arguments.kubeconfig or _kubeconfig(os.environ)
    if kubeconfig is None and _IN_CLUSTER not in os.environ:
        place = "--kubeconfig"
        saw = "is missing, KUBECONFIG isn't set, and this is no pod with a service account"
        mend = "name one: podgpu doctor --cluster --kubeconfig ~/.kube/config"
        return Subject("", place), [CHECKS["cluster.server"].failure(place, saw, mend)]
    # The command line names it, or a variable of whoever runs the command.
    kube = Sessions(plugins=True).session
    findings = _run(diagnose(kube, kubeconfig, arguments.namespace), SECONDS)
    return Subject("", str(kubeconfig or _ACCOUNT)), findings


def _kubeconfig(env: Mapping[str, str]) -> Path | None:
    """Return the first file of the variable that is there, else the first; None without one."""
    named = [Path(each) for each in env.get("KUBECONFIG", "").split(os.pathsep) if each]
    return next((each for each in named if os.path.lexists(each)), next(iter(named), None))


def _run(looking: Coroutine[Any, Any, list[Finding]], seconds: float) -> list[Finding]:
    """Run to the end; a call that hangs in a thread is left behind.

    Args:
        looking: what is run.
        seconds: the sum of its limits; what takes much longer ends the process by SIGALRM.
    """

    async def main() -> list[Finding]:
        # What ends a loop waits for the threads of its usual executor.
        asyncio.get_running_loop().set_default_executor(DaemonExecutor("doctor", _THREADS))
        return await looking

    with _mortal(seconds + _SLACK):
        return asyncio.run(main())


@contextmanager
def _mortal(seconds: float) -> Iterator[None]:
    """Let signals end the process by themselves, and an alarm do so after a while.

    A handler of the interpreter's would wait for its lock, which a library that is being loaded
    may hold for ever. To process 1 of a container the kernel passes on what has a handler alone.
    """
    wanted = _end if os.getpid() == 1 else signal.SIG_DFL
    before = {each: signal.signal(each, wanted) for each in (signal.SIGTERM, signal.SIGALRM)}
    left, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left)
        for each, handler in before.items():
            if handler is not None:  # it isn't the interpreter's
                signal.signal(each, handler)


def _end(signum: int, _frame: FrameType | None) -> None:
    os._exit(128 + signum)
