"""Examinations: bounded in time, independent of each other, told in order."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.component.check import BOTH, FAILS, WARNS, Check
from pipeline.component.findings import Finding, Verdict, count_by_verdict, exit_status
from pipeline.diagnostics import check_runner
from pipeline.diagnostics.check_runner import Examination, of_components, run
from pipeline.diagnostics.check_table import CHECKS
from pipeline.diagnostics.context import DoctorContext
from tests.podgpu.doctor.support import config, is_bad, of

OK = CHECKS["clock"].ok("here", "well")


async def _well() -> list[Finding]:
    return [OK]


async def _hangs() -> list[Finding]:
    await asyncio.sleep(3600)
    return []


async def _crashes() -> list[Finding]:
    raise KeyError("minor")


async def _says_timeout() -> list[Finding]:
    raise TimeoutError("of its own")


KINDS: dict[str, tuple[Callable[[], Awaitable[list[Finding]]], str]] = {
    "well": (_well, "clock"),
    "hangs": (_hangs, "check.deadline"),
    "crashes": (_crashes, "check.bug"),
    "says-timeout": (_says_timeout, "check.bug"),
}


@pytest.mark.looptime
async def test_a_check_that_hangs_is_a_failure_that_says_so() -> None:
    begun = asyncio.get_running_loop().time()
    found = await run([Examination("the disk", _hangs), Examination("b", _well)], 30)
    assert asyncio.get_running_loop().time() - begun == pytest.approx(30)
    is_bad(found[0], "failure", "no answer within 30 s", "does not respond")
    assert found[0].subject == "the disk"
    assert found[1] == OK


async def test_a_bug_is_a_failure_with_its_text_and_place() -> None:
    found = await run([Examination("the disk", _crashes)], 30)
    is_bad(found[0], "failure", "KeyError: 'minor' (test_check_runner.py:", "report this")
    assert exit_status(found) == 2


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(sorted(KINDS)), max_size=8))
def test_whatever_one_check_does_the_others_are_reported_in_order(names: list[str]) -> None:
    examinations = [Examination(f"{at}", KINDS[name][0]) for at, name in enumerate(names)]
    found = asyncio.run(run(examinations, 0.05))
    assert [finding.check for finding in found] == [KINDS[name][1] for name in names]


async def test_findings_of_a_component_name_it() -> None:
    found = await run([Examination("source kubelet", _well, component=True)], 30)
    assert found[0].component == "source kubelet"


async def test_each_component_is_looked_after_by_what_its_entry_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given_out: list[tuple[str, msgspec.Struct]] = []

    def load(dotted: str) -> object:
        async def examine(options: msgspec.Struct, _ctx: DoctorContext) -> list[Finding]:
            given_out.append((dotted, options))
            return [OK]

        return examine

    monkeypatch.setattr(check_runner, "load", load)
    made = config(
        "sources: {a: {kind: nvml, interval: 7s}, b: {kind: checkpoint}}\n"
        "sinks: {p: {kind: prometheus}, l: {kind: jsonl}}\n"
    )
    found = await run(of_components(made, DoctorContext(made)), 30)
    assert [finding.component for finding in found] == ["source a", "source b", "sink l"]
    assert sorted(dotted for dotted, _ in given_out) == [
        "sinks.jsonl.doctor:examine",
        "sources.checkpoint.doctor:examine",
        "sources.nvml.doctor:examine",
    ]
    assert made.sources["a"].options in [options for _, options in given_out]


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


def test_a_check_gives_no_verdict_that_its_row_does_not_name() -> None:
    check = Check("a", "b", "c", "d", WARNS, skips=False)
    assert check.warning("place", "saw", "mend").verdict is Verdict.WARNING
    with pytest.raises(ValueError, match="a: the check's definition does not allow failure"):
        check.failure("place", "saw", "mend")
    with pytest.raises(ValueError, match="a: the check's definition does not allow skipped"):
        check.skip("place", "why")


def test_the_place_is_reported_once() -> None:
    check = CHECKS["nri.socket"]
    assert check.ok("/a/b", "/a/b: is here").observed == "is here"
    assert check.ok("/a", "/a/b: is here").observed == "/a/b: is here"


@pytest.mark.parametrize("worst", [FAILS, BOTH])
def test_a_failure_has_a_fix(worst: frozenset[Verdict]) -> None:
    with pytest.raises(ValueError, match="needs a fix"):
        Check("a", "b", "c", "d", worst).failure("place", "saw", "")


def test_of_takes_one_finding_alone() -> None:
    with pytest.raises(AssertionError):
        of([OK, OK], "clock")
