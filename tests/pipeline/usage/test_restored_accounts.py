"""Accounts and holdings continue after a restart of podgpu; the time between is a gap."""

from dataclasses import replace

import pytest

from pipeline.model import DeviceUsage, Holder, Holding, Instant
from pipeline.usage.device_accounts import MAX_PENDING
from tests.pipeline.usage.samples import GPU, Book, S, adds_up, container, holder, process
from tests.support.nodes import at, gpu
from tests.support.usage import account, holding, used


def before(*, uid: str | None = "uid-a") -> DeviceUsage:
    """Return an account of ten seconds: `a` holds half of the device, `b` has ended."""
    return account(
        GPU,
        used(
            "a",
            uid=uid,
            busy=3 * S,
            held=5 * S,
            energy=400,
            xids=((79, 1),),
            holding=holding(
                "a", GPU, uid=uid, start=at(4), until=at(10), held=2 * S, busy=S, busy_peak=500_000
            ),
        ),
        used("b", uid="uid-b", ended=at(8), busy=1, held=S, energy=5),
        until=at(10),
        memory=None,
        busy=7,
        unheld=4 * S,
        energy=100,
        forgotten=(10, 20, 30),
    )


def restored(*accounts: DeviceUsage, when: float = 40, book: Book | None = None) -> Book:
    book = book or Book()
    book.accounts.restore(accounts or (before(),), at(when))
    return book


def continuing(book: Book, pod: str = "a") -> Holding:
    found = container(book.account(), pod).holding
    assert found is not None
    return found


def length(one: Holding, until: Instant | None = None) -> int:
    end = one.end or until
    assert end is not None
    return end.mono_ns - one.start.mono_ns


def test_restored_totals_equal_the_stored_ones() -> None:
    stored, book = before(), restored()
    found = book.account()
    assert replace(found, containers=()) == replace(stored, containers=())
    assert found.containers == stored.containers


def test_a_container_whose_claim_returns_continues_with_a_gap() -> None:
    book = restored()
    book.hold(41, holder("a", 0.5))
    book.sample(42, None, energy=1000)
    book.sample(47, 42, process("a", busy=S), busy=S, energy=1300)
    one, total = continuing(book), container(book.account(), "a")
    assert (one.start, one.counted_ns, one.gap_ns) == (at(4), 11 * S, 32 * S)
    assert (one.held_ns, one.busy_ns) == (2 * S + 5 * S // 2, 2 * S)
    assert (total.start, total.held_ns, total.busy_ns) == (at(0), 5 * S + 5 * S // 2, 4 * S)
    assert total.energy_mj == 400 + 300
    assert book.account().elapsed_ns == before().elapsed_ns + 5 * S
    assert book.usage().ended == ()


def test_a_container_whose_processes_return_continues_with_a_gap() -> None:
    book = restored()
    book.sample(42, None, process("a"))
    book.sample(47, 42, process("a"))
    assert (continuing(book).counted_ns, continuing(book).gap_ns) == (11 * S, 32 * S)


def test_a_container_not_seen_within_a_minute_ended_when_podgpu_did() -> None:
    book = restored()
    for when in (42, 47, 102):
        book.sample(when, None)
    assert container(book.account(), "a").ended is None
    assert (
        length(continuing(book), at(102)) == continuing(book).counted_ns + continuing(book).gap_ns
    )
    book.accounts.expire(at(102.1))
    [one] = book.usage().ended
    assert (one.start, one.end, one.counted_ns, one.gap_ns) == (at(4), at(10), 6 * S, 0)
    assert container(book.account(), "a").ended == at(10)
    book.hold(110, holder("a"))
    assert continuing(book).start == at(110)
    assert container(book.account(), "a").start == at(0)


def test_an_ended_container_stays_ended_until_it_is_forgotten() -> None:
    book = restored()
    book.sample(42, None)
    assert container(book.account(), "b").ended == at(8)
    book.accounts.expire(at(308.1))
    found = book.account()
    assert "b" not in {one.subject.pod for one in found.containers}
    assert found.forgotten_held_ns == before().forgotten_held_ns + S


def test_a_container_without_uid_is_not_continued() -> None:
    book = restored(before(uid=""))
    [one] = book.usage().ended
    assert (one.subject.uid, one.end) == ("", at(10))
    found = book.account()
    assert [each.subject.pod for each in found.containers] == ["b"]
    assert (found.forgotten_busy_ns, found.forgotten_held_ns) == (10 + 3 * S, 20 + 5 * S)
    assert found.elapsed_ns == before().elapsed_ns


def test_a_pod_with_another_uid_has_another_account() -> None:
    book = restored()
    other = holder("a")
    other = replace(other, subject=replace(other.subject, uid="another"))
    book.hold(41, other)
    book.sample(42, None)
    book.sample(47, 42)
    [new] = [one for one in book.account().containers if one.subject.uid == "another"]
    assert (new.held_ns, new.start) == (5 * S, at(42))


def test_a_restored_account_waits_a_limited_time_for_its_device() -> None:
    late, never = gpu(5), gpu(6)
    book = Book()
    stored = [
        account(d, used("a", holding=holding("a", d, until=at(10))), until=at(10), memory=None)
        for d in (late, never)
    ]
    restored(*stored, book=book)
    assert book.usage().devices == {}
    book.set_devices(300, GPU, late)
    assert container(book.account(late), "a").holding is not None
    book.accounts.expire(at(340.1))
    [one] = book.usage().ended
    assert (one.device, one.end, one.counted_ns) == (never.uuid, at(10), 10 * S)
    book.set_devices(350, GPU, late, never)
    assert never.uuid not in book.usage().devices


def test_an_account_of_a_device_that_has_one_already_is_not_restored() -> None:
    book = Book()
    book.sample(1, None)
    restored(book=book)
    [one] = book.usage().ended
    assert (one.subject.pod, one.end) == ("a", at(10))
    assert book.account().elapsed_ns == 0


def test_the_number_of_accounts_that_wait_for_their_device_is_limited() -> None:
    many = [
        account(f"GPU-{n}", used("a", holding=holding("a", f"GPU-{n}")), memory=None)
        for n in range(MAX_PENDING + 2)
    ]
    book = restored(*many)
    assert len(book.usage().ended) == 2


def test_times_in_the_future_are_moved_to_now() -> None:
    # The wall clock was set back by at least eight seconds.
    book = restored(when=2)
    found = book.account()
    one = continuing(book)
    assert (found.at, one.start.wall_ns) == (at(2), at(2).wall_ns)
    assert length(one, found.at) == one.counted_ns + one.gap_ns == 6 * S
    book.hold(2, holder("a"))
    book.sample(5, None)
    assert (continuing(book).counted_ns, continuing(book).gap_ns) == (6 * S, 3 * S)


@pytest.mark.parametrize(
    "stored",
    [
        replace(before(), elapsed_ns=1),
        replace(before(), busy_ns=None),
        replace(before(), energy_mj=1 << 60),
    ],
)
def test_restored_totals_are_recalculated_from_their_parts(stored: DeviceUsage) -> None:
    book = restored(stored)
    adds_up(book.account())
    assert book.account().elapsed_ns == before().elapsed_ns


def test_an_ended_holding_that_was_not_reported_is_reported_after_a_restart() -> None:
    late = holding("b", GPU, uid="uid-b", start=at(3), until=at(5))
    stored = before()
    ended = replace(stored.containers[1], holding=late)
    book = restored(replace(stored, containers=(stored.containers[0], ended)))
    [one] = book.usage().ended
    assert (one.start, one.end, one.counted_ns, one.gap_ns) == (at(3), at(8), 2 * S, 3 * S)


def nameless(pod: str) -> Holder:
    """Return a holder as the kubelet reports it, before its UID is known from the API server."""
    one = holder(pod)
    return replace(one, subject=replace(one.subject, uid=""))


@pytest.mark.parametrize("since", [None, 40.5])
def test_a_partly_named_container_before_the_first_sample_makes_no_holding(
    since: float | None,
) -> None:
    book = restored()
    book.hold(41, nameless("a"))
    book.hold(42, holder("a"))
    book.sample(43, since)
    book.sample(48, 43)
    book.accounts.expire(at(120))
    assert book.usage().ended == ()
    assert {one.subject.uid for one in book.account().containers} == {"uid-a", "uid-b"}
    assert (continuing(book).start, continuing(book).counted_ns) == (at(4), 11 * S)


def test_a_device_removed_before_the_first_sample_was_held_until_podgpu_ended() -> None:
    book = restored()
    book.hold(41, holder("a"))
    book.set_devices(42)
    [one] = book.usage().ended
    assert (one.end, one.counted_ns, one.gap_ns) == (at(10), 6 * S, 0)


def test_time_between_the_restart_and_the_return_of_a_container_is_no_gap() -> None:
    """Samples counted in between: only the time for which podgpu was down is a gap."""
    book = restored()
    book.sample(42, None)
    book.sample(52, 42)
    book.hold(60, holder("a"))
    book.sample(62, 52)
    one = continuing(book)
    assert (one.counted_ns, one.gap_ns) == (6 * S + 20 * S, 32 * S)
    assert (one.unseen_counted_ns, one.unseen_gap_ns) == (0, 0)
    assert one.held_ns == 2 * S + 2 * S


@pytest.mark.parametrize("starts", [1, 2, 3])
def test_a_container_that_no_run_has_seen_ended_when_it_was_last_seen(starts: int) -> None:
    """However often podgpu restarts within a minute."""
    stored, now, book = before(), 40.0, Book()
    for _ in range(starts):
        book = restored(stored, when=now)
        for when in (now + 2, now + 12):
            book.sample(when, None if when == now + 2 else now + 2)
        stored, now = book.account(), now + 30
    one = continuing(book)
    assert length(one, stored.at) == one.counted_ns + one.gap_ns
    book.sample(now + 40, None)
    book.accounts.expire(at(now + 60))
    [ended] = book.usage().ended
    assert (ended.start, ended.end, ended.counted_ns, ended.gap_ns) == (at(4), at(10), 6 * S, 0)


def test_a_container_seen_again_after_two_restarts_gets_all_samples_in_between() -> None:
    book = restored()
    book.sample(42, None)
    book.sample(52, 42)
    book = restored(book.account(), when=60)
    book.sample(62, None)
    book.hold(63, holder("a"))
    book.sample(72, 62)
    one = continuing(book)
    assert (one.counted_ns, one.gap_ns) == (6 * S + 10 * S + 10 * S, 32 * S + 10 * S)


def test_an_ended_holding_that_was_not_final_keeps_what_was_counted() -> None:
    """Its energy was not known when podgpu ended."""
    book = Book()
    book.hold(1, holder("a"))
    book.sample(2, None, energy=1000)
    book.sample(7, 2, process("a", busy=S), busy=S, energy=2000)
    book.sample(10, 7, process("a", busy=S), busy=S, energy=2500)
    book.hold(11, holder("b"))
    stored = book.sample(12, 10, process("a", busy=S, there=False), busy=S, energy=None)
    [closing] = container(stored, "a").closing
    assert (closing.end, closing.counted_ns, closing.busy_ns) == (at(11), 9 * S, 3 * S)
    assert book.usage().ended == ()
    book = restored(stored)
    [ended] = [one for one in book.usage().ended if one.subject.pod == "a"]
    assert (ended.start, ended.end, ended.counted_ns, ended.gap_ns) == (at(2), at(11), 9 * S, 0)
    assert (ended.busy_ns, ended.id) == (3 * S, closing.id)
    assert container(book.account(), "a").closing == ()


def test_the_end_of_an_empty_holding_is_reported_if_its_start_was() -> None:
    """Otherwise its row in the ledger would stay open."""
    one = holding("a", GPU, start=at(10), until=at(10), held=0)
    book = restored(account(GPU, used("a", start=at(10), uid="uid-a", holding=one), until=at(10)))
    book.sample(42, None)
    book.sample(50, 42)
    book.accounts.expire(at(102.1))
    [ended] = book.usage().ended
    assert (ended.start, ended.end, ended.counted_ns, ended.gap_ns) == (at(10), at(10), 0, 0)
