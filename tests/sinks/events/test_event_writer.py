"""What is written on a pod that an error struck, and when."""

from typing import Any

import pytest

from tests.sinks.events.support import GPU, Bench, passes, victim

pytestmark = pytest.mark.looptime


async def test_an_event_stands_on_the_pod() -> None:
    async with Bench().running() as bench:
        bench.strikes(code=79)
        await passes(7)
    event = bench.event()
    assert event.pop("metadata")["namespace"] == "ml"
    assert event == {
        "apiVersion": "v1",
        "kind": "Event",
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": "ml",
            "name": "a",
            "uid": "uid-a",
            "fieldPath": "spec.containers{main}",
        },
        "type": "Warning",
        "reason": "GpuXidError",
        "message": f"XID 79 (GPU has fallen off the bus) on {GPU}, which this pod held and used",
        "source": {"component": "podgpu", "host": "node-1"},
        "reportingComponent": "podgpu",
        "reportingInstance": "node-1",
        "firstTimestamp": "2027-01-15T08:00:00Z",
        "lastTimestamp": "2027-01-15T08:00:00Z",
        "count": 1,
    }
    [path] = bench.api.objects
    assert path.startswith("/api/v1/namespaces/ml/events/a.")


async def test_it_is_written_when_the_kernel_s_log_has_had_its_time() -> None:
    async with Bench().running() as bench:
        await passes(1)
        error = bench.strikes()
        await passes(3)
        assert bench.events() == []
        victims = (victim("a", GPU, uid="uid-a", caused=True),)
        bench.learns(error, pid=1234, process="python", victims=victims)
        await passes(4)
        assert bench.asked() == [(7, "POST")]
        message = bench.event()["message"]
    assert message.endswith(
        "; the kernel log names a process of this pod: python (pid 1234 on the node)"
    )


async def test_what_is_learnt_later_makes_no_second_one() -> None:
    async with Bench().running() as bench:
        error = bench.strikes()
        await passes(7)
        bench.learns(error, pid=1234, process="python")
        await passes(3600)
        assert bench.asked() == [(6, "POST")]


async def test_of_another_pod_s_process_nothing_is_reported_but_that_there_is_one() -> None:
    async with Bench().running() as bench:
        bench.strikes(
            victim("a", GPU, uid="uid-a"),
            victim("b", GPU, uid="uid-b", caused=True),
            pid=77,
            process="secret-model",
        )
        await passes(7)
    of = {event["involvedObject"]["name"]: event["message"] for event in bench.events()}
    assert "secret-model (pid 77 on the node)" in of["b"]
    assert of["a"].endswith("; the kernel log names a process that is not known to be this pod's")


HOW = {
    (True, True): ", which this pod held and used",
    (True, False): ", which this pod held",
    (False, True): ", which this pod used",
}


@pytest.mark.parametrize(("flags", "text"), HOW.items())
async def test_it_says_what_the_pod_had_to_do_with_the_device(
    flags: tuple[bool, bool], text: str
) -> None:
    async with Bench().running() as bench:
        holds, uses = flags
        bench.strikes(victim("a", GPU, uid="uid-a", holds=holds, uses=uses))
        await passes(7)
    assert bench.event()["message"] == f"XID 31 (Page fault in the GPU's memory) on {GPU}{text}"


async def test_a_code_that_no_one_has_words_for() -> None:
    async with Bench().running() as bench:
        bench.strikes(code=4711)
        await passes(7)
    assert bench.event()["message"].startswith(f"XID 4711 on {GPU}, ")


async def test_a_process_s_name_is_text() -> None:
    """Whoever may start a process on the node may give it any name."""
    async with Bench().running() as bench:
        victims = victim("a", GPU, uid="uid-a", caused=True)
        bench.strikes(victims, pid=1, process="\x1b[31m\n" + "x" * 5000)
        await passes(7)
    message = bench.event()["message"]
    assert message.isprintable()
    assert len(message) <= 1024


CONTAINERS: dict[str, tuple[list[dict[str, Any]], str | None]] = {
    "one": ([{"container": "main"}], "spec.containers{main}"),
    "one that nobody could tell": ([{"container": ""}], None),
    "several": ([{"container": "main"}, {"container": "side"}], None),
    "of several the one whose process it was": (
        [{"container": "main"}, {"container": "side", "caused": True}],
        "spec.containers{side}",
    ),
}


@pytest.mark.parametrize(("victims", "path"), CONTAINERS.values(), ids=CONTAINERS)
async def test_a_pod_has_one_event_for_all_its_containers(
    victims: list[dict[str, Any]], path: str | None
) -> None:
    async with Bench().running() as bench:
        bench.strikes(*(victim("a", GPU, uid="uid-a", **one) for one in victims))
        await passes(7)
    assert bench.event()["involvedObject"].get("fieldPath") == path
    assert bench.event()["count"] == 1


async def test_a_name_of_any_length_has_an_event_with_a_name() -> None:
    name = "a" * 227 + "." + "b" * 25
    async with Bench().running() as bench:
        bench.strikes(victim(name, GPU, uid="uid-a"))
        await passes(7)
    made = bench.event()["metadata"]["name"]
    assert len(made) <= 253
    assert bench.event()["involvedObject"]["name"] == name


# -- which ones


NAMELESS = {
    "without a uid": {"pod": "a", "uid": ""},
    "without a name": {"pod": "", "uid": "uid-a"},
    "without a namespace": {"pod": "a", "uid": "uid-a", "namespace": ""},
    "with a name that is a path": {"pod": "a/../../secrets", "uid": "uid-a"},
    "with a namespace that is a path": {"pod": "a", "uid": "uid-a", "namespace": "../x"},
}


@pytest.mark.parametrize("what", NAMELESS.values(), ids=NAMELESS)
async def test_who_can_t_be_named_has_none_and_is_counted(what: dict[str, str]) -> None:
    async with Bench().running() as bench:
        pod = what.pop("pod")
        bench.strikes(victim(pod, GPU, **what), victim("b", GPU, uid="uid-b"))  # type: ignore[arg-type]
        await passes(7)
        assert bench.lost("nameless") == 1
    assert bench.event()["involvedObject"]["name"] == "b"


async def test_codes_that_no_one_asked_for_are_not_reported() -> None:
    async with Bench(codes=(48, 79)).running() as bench:
        for code in (31, 79, 43, 48):
            bench.strikes(code=code)
        await passes(7)
    assert [event["message"][:6] for event in bench.events()] == ["XID 79", "XID 48"]


async def test_namespaces_that_no_one_asked_for_are_left_alone() -> None:
    async with Bench(namespaces=("team-*", "ml")).running() as bench:
        names = ("ml", "kube-system", "team-a", "xteam-a")
        bench.strikes(*(victim("a", GPU, uid="uid-a", namespace=name) for name in names))
        await passes(7)
    assert [event["metadata"]["namespace"] for event in bench.events()] == ["ml", "team-a"]


async def test_an_error_without_victims_is_reported_no_one() -> None:
    async with Bench().running() as bench:
        bench.errors.append(bench.strikes())
        bench.errors = [bench.errors[0].__class__(1, GPU, 79, bench.errors[0].at, ())]
        bench.show()
        await passes(60)
    assert bench.events() == []
