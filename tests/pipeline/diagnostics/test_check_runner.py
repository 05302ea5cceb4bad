"""Examinations: limited in time, independent of each other, reported in order."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.component.findings import (
    BOTH,
    FAILS,
    WARNS,
    Check,
    Finding,
    Verdict,
    count_by_verdict,
    exit_status,
)
from pipeline.diagnostics import check_runner
from pipeline.diagnostics.check_runner import Examination, of_components, run
from pipeline.diagnostics.context import DoctorContext
from tests.podgpu.doctor.support import config, is_bad, of
from tests.support.examples import examples

OK = Check("clock", BOTH).ok("here", "synchronised")


async def _succeed() -> list[Finding]:
    return [OK]


async def _hang() -> list[Finding]:
    await asyncio.sleep(3600)
    return []


async def _crash() -> list[Finding]:
    raise KeyError("minor")


async def _raise_timeout() -> list[Finding]:
    raise TimeoutError("not the deadline of the runner")


KINDS: dict[str, tuple[Callable[[], Awaitable[list[Finding]]], str]] = {
    "succeeds": (_succeed, "clock"),
    "hangs": (_hang, "check.deadline"),
    "crashes": (_crash, "check.bug"),
    "raises-timeout": (_raise_timeout, "check.bug"),
}


@pytest.mark.looptime
async def test_a_check_that_hangs_is_a_failure_after_the_deadline() -> None:
    started = asyncio.get_running_loop().time()
    found = await run([Examination("the disk", _hang), Examination("b", _succeed)], 30)
    assert asyncio.get_running_loop().time() - started == pytest.approx(30)
    is_bad(found[0], "failure", "no result within 30 s", "does not respond")
    assert found[0].subject == "the disk"
    assert found[1] == OK


async def test_an_error_in_a_check_is_a_failure_with_its_text_and_line() -> None:
    found = await run([Examination("the disk", _crash)], 30)
    is_bad(found[0], "failure", "KeyError: 'minor' (test_check_runner.py:", "report this")
    assert exit_status(found) == 2


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.sampled_from(sorted(KINDS)), max_size=8))
def test_each_check_gives_a_finding_in_order_whatever_the_others_do(names: list[str]) -> None:
    examinations = [Examination(f"{at}", KINDS[name][0]) for at, name in enumerate(names)]
    found = asyncio.run(run(examinations, 0.05))
    assert [finding.check for finding in found] == [KINDS[name][1] for name in names]


async def test_findings_of_a_component_have_its_name() -> None:
    found = await run([Examination("source kubelet", _succeed, component=True)], 30)
    assert found[0].component == "source kubelet"


async def test_each_component_is_examined_by_the_function_that_its_kind_registers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[tuple[str, msgspec.Struct]] = []

    def load(dotted: str) -> object:
        async def examine(options: msgspec.Struct, _ctx: DoctorContext) -> list[Finding]:
            calls.append((dotted, options))
            return [OK]

        return examine

    monkeypatch.setattr(check_runner, "load", load)
    made = config(
        "sources: {a: {kind: nvml, interval: 7s}, b: {kind: checkpoint}}\n"
        "sinks: {p: {kind: prometheus}, l: {kind: jsonl}}\n"
    )
    found = await run(of_components(made, DoctorContext(made)), 30)
    assert [finding.component for finding in found] == ["source a", "source b", "sink l"]
    assert sorted(dotted for dotted, _ in calls) == [
        "sinks.jsonl.doctor:examine",
        "sources.checkpoint.doctor:examine",
        "sources.nvml.doctor:examine",
    ]
    assert made.sources["a"].options in [options for _, options in calls]


STATUS = [
    ([], 0),
    ([Verdict.OK, Verdict.SKIPPED], 0),
    ([Verdict.OK, Verdict.WARNING], 1),
    ([Verdict.FAILURE, Verdict.WARNING], 2),
]


@pytest.mark.parametrize(("verdicts", "status"), STATUS)
def test_the_worst_verdict_is_the_exit_status(verdicts: list[Verdict], status: int) -> None:
    findings = [Finding("a", verdict, "b", "c") for verdict in verdicts]
    assert exit_status(findings) == status
    assert sum(count_by_verdict(findings).values()) == len(findings)


def test_a_check_gives_only_verdicts_of_its_definition() -> None:
    check = Check("a", WARNS)
    assert check.warning("place", "observed", "fix").verdict is Verdict.WARNING
    with pytest.raises(ValueError, match="a: a failure needs a fix, and possible_verdicts must"):
        check.failure("place", "observed", "fix")


def test_the_subject_is_not_repeated_in_the_observation() -> None:
    check = Check("nri.socket", FAILS)
    assert check.ok("/a/b", "/a/b: is here").observed == "is here"
    assert check.ok("/a", "/a/b: is here").observed == "/a/b: is here"


@pytest.mark.parametrize("worst", [FAILS, BOTH])
def test_a_failure_has_a_fix(worst: frozenset[Verdict]) -> None:
    with pytest.raises(ValueError, match="needs a fix"):
        Check("a", worst).failure("place", "observed", "")


def test_the_helper_of_expects_exactly_one_finding() -> None:
    with pytest.raises(AssertionError):
        of([OK, OK], "clock")
