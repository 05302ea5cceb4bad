"""Accounts and holdings go on where podgpu left them, and the time between is a gap."""

from dataclasses import replace

import pytest

from pipeline.model import DeviceUsage, Holder, Holding, Instant
from pipeline.usage.restored_accounts import MAX_PENDING
from tests.pipeline.usage.looking import GPU, Book, S, adds_up, container, holder, process
from tests.support.nodes import at, gpu
from tests.support.usage import account, holding, used


def before(*, uid: str | None = "uid-a") -> DeviceUsage:
    """An account of ten seconds: `a` holds half of the device, `b` has ended."""
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


def again(*accounts: DeviceUsage, when: float = 40, book: Book | None = None) -> Book:
    book = book or Book()
    book.accounts.restore(accounts or (before(),), at(when))
    return book


def continuing(book: Book, pod: str = "a") -> Holding:
    found = container(book.of(), pod).holding
    assert found is not None
    return found


def length(one: Holding, until: Instant | None = None) -> int:
    end = one.end or until
    assert end is not None
    return end.mono_ns - one.start.mono_ns


def test_totals_continue_and_add_up_at_once() -> None:
    given_out, book = before(), again()
    found = book.of()
    assert replace(found, containers=()) == replace(given_out, containers=())
    assert found.containers == given_out.containers


def test_whose_holder_is_seen_again_continues_with_a_gap() -> None:
    book = again()
    book.hold(41, holder("a", 0.5))
    book.look(42, None, energy=1000)
    book.look(47, 42, process("a", busy=S), busy=S, energy=1300)
    one, whole = continuing(book), container(book.of(), "a")
    assert (one.start, one.counted_ns, one.gap_ns) == (at(4), 11 * S, 32 * S)
    assert (one.held_ns, one.busy_ns) == (2 * S + 5 * S // 2, 2 * S)
    assert (whole.start, whole.held_ns, whole.busy_ns) == (at(0), 5 * S + 5 * S // 2, 4 * S)
    assert whole.energy_mj == 400 + 300
    assert book.of().elapsed_ns == before().elapsed_ns + 5 * S
    assert book.usage().ended == ()


def test_one_that_uses_it_continues_too() -> None:
    book = again()
    book.look(42, None, process("a"))
    book.look(47, 42, process("a"))
    assert (continuing(book).counted_ns, continuing(book).gap_ns) == (11 * S, 32 * S)


def test_one_that_is_not_seen_within_a_minute_ended_when_podgpu_did() -> None:
    book = again()
    for when in (42, 47, 102):
        book.look(when, None)
    assert container(book.of(), "a").ended is None
    assert (
        length(continuing(book), at(102)) == continuing(book).counted_ns + continuing(book).gap_ns
    )
    book.accounts.expire(at(102.1))
    [one] = book.usage().ended
    assert (one.start, one.end, one.counted_ns, one.gap_ns) == (at(4), at(10), 6 * S, 0)
    assert container(book.of(), "a").ended == at(10)
    book.hold(110, holder("a"))
    assert continuing(book).start == at(110)
    assert container(book.of(), "a").start == at(0)


def test_what_had_ended_stays_so_for_its_time() -> None:
    book = again()
    book.look(42, None)
    assert container(book.of(), "b").ended == at(8)
    book.accounts.expire(at(308.1))
    found = book.of()
    assert "b" not in {one.subject.pod for one in found.containers}
    assert found.forgotten_held_ns == before().forgotten_held_ns + S


def test_who_has_no_uid_is_not_continued() -> None:
    book = again(before(uid=""))
    [one] = book.usage().ended
    assert (one.subject.uid, one.end) == ("", at(10))
    found = book.of()
    assert [each.subject.pod for each in found.containers] == ["b"]
    assert (found.forgotten_busy_ns, found.forgotten_held_ns) == (10 + 3 * S, 20 + 5 * S)
    assert found.elapsed_ns == before().elapsed_ns


def test_another_uid_is_another_container() -> None:
    book = again()
    other = holder("a")
    other = replace(other, subject=replace(other.subject, uid="another"))
    book.hold(41, other)
    book.look(42, None)
    book.look(47, 42)
    [new] = [one for one in book.of().containers if one.subject.uid == "another"]
    assert (new.held_ns, new.start) == (5 * S, at(42))


def test_a_device_waits_to_be_known_and_not_for_ever() -> None:
    late, never = gpu(5), gpu(6)
    book = Book()
    given_out = [
        account(d, used("a", holding=holding("a", d, until=at(10))), until=at(10), memory=None)
        for d in (late, never)
    ]
    again(*given_out, book=book)
    assert book.usage().devices == {}
    book.have(300, GPU, late)
    assert container(book.of(late), "a").holding is not None
    book.accounts.expire(at(340.1))
    [one] = book.usage().ended
    assert (one.device, one.end, one.counted_ns) == (never.uuid, at(10), 10 * S)
    book.have(350, GPU, late, never)
    assert never.uuid not in book.usage().devices


def test_one_of_a_device_with_an_account_continues_nowhere() -> None:
    book = Book()
    book.look(1, None)
    again(book=book)
    [one] = book.usage().ended
    assert (one.subject.pod, one.end) == ("a", at(10))
    assert book.of().elapsed_ns == 0


def test_no_more_than_some_devices_wait() -> None:
    many = [
        account(f"GPU-{n}", used("a", holding=holding("a", f"GPU-{n}")), memory=None)
        for n in range(MAX_PENDING + 2)
    ]
    book = again(*many)
    assert len(book.usage().ended) == 2


def test_what_lies_in_the_future_is_moved_to_now() -> None:
    # The wall clock was set back by eight seconds or more.
    book = again(when=2)
    found = book.of()
    one = continuing(book)
    assert (found.at, one.start.wall_ns) == (at(2), at(2).wall_ns)
    assert length(one, found.at) == one.counted_ns + one.gap_ns == 6 * S
    book.hold(2, holder("a"))
    book.look(5, None)
    assert (continuing(book).counted_ns, continuing(book).gap_ns) == (6 * S, 3 * S)


@pytest.mark.parametrize(
    "given_out",
    [
        replace(before(), elapsed_ns=1),
        replace(before(), busy_ns=None),
        replace(before(), energy_mj=1 << 60),
    ],
)
def test_totals_are_the_sum_of_what_was_reported_of_their_parts(given_out: DeviceUsage) -> None:
    book = again(given_out)
    adds_up(book.of())
    assert book.of().elapsed_ns == before().elapsed_ns


def test_a_holding_that_had_ended_and_was_not_reported_of_is_reported_of() -> None:
    late = holding("b", GPU, uid="uid-b", start=at(3), until=at(5))
    given_out = before()
    ended = replace(given_out.containers[1], holding=late)
    book = again(replace(given_out, containers=(given_out.containers[0], ended)))
    [one] = book.usage().ended
    assert (one.start, one.end, one.counted_ns, one.gap_ns) == (at(3), at(8), 2 * S, 3 * S)


def nameless(pod: str) -> Holder:
    """As the kubelet tells of it, before the API server names its uid."""
    one = holder(pod)
    return replace(one, subject=replace(one.subject, uid=""))


@pytest.mark.parametrize("since", [None, 40.5])
def test_half_a_name_before_the_first_look_makes_no_holding(since: float | None) -> None:
    book = again()
    book.hold(41, nameless("a"))
    book.hold(42, holder("a"))
    book.look(43, since)
    book.look(48, 43)
    book.accounts.expire(at(120))
    assert book.usage().ended == ()
    assert {one.subject.uid for one in book.of().containers} == {"uid-a", "uid-b"}
    assert (continuing(book).start, continuing(book).counted_ns) == (at(4), 11 * S)


def test_a_device_that_goes_before_anybody_looked_was_held_until_podgpu_ended() -> None:
    book = again()
    book.hold(41, holder("a"))
    book.have(42)
    [one] = book.usage().ended
    assert (one.end, one.counted_ns, one.gap_ns) == (at(10), 6 * S, 0)


def test_what_passed_before_one_is_seen_again_is_its_time_and_no_gap() -> None:
    """Looks counted meanwhile: only the time for which podgpu was down is a gap."""
    book = again()
    book.look(42, None)
    book.look(52, 42)
    book.hold(60, holder("a"))
    book.look(62, 52)
    one = continuing(book)
    assert (one.counted_ns, one.gap_ns) == (6 * S + 20 * S, 32 * S)
    assert (one.unseen_counted_ns, one.unseen_gap_ns) == (0, 0)
    assert one.held_ns == 2 * S + 2 * S


@pytest.mark.parametrize("starts", [1, 2, 3])
def test_one_that_no_run_has_seen_ended_where_it_was_last_there(starts: int) -> None:
    """However often podgpu starts anew within a minute."""
    given_out, now, book = before(), 40.0, Book()
    for _ in range(starts):
        book = again(given_out, when=now)
        for when in (now + 2, now + 12):
            book.look(when, None if when == now + 2 else now + 2)
        given_out, now = book.of(), now + 30
    one = continuing(book)
    assert length(one, given_out.at) == one.counted_ns + one.gap_ns
    book.look(now + 40, None)
    book.accounts.expire(at(now + 60))
    [ended] = book.usage().ended
    assert (ended.start, ended.end, ended.counted_ns, ended.gap_ns) == (at(4), at(10), 6 * S, 0)


def test_one_seen_again_after_two_starts_has_all_looks_between() -> None:
    book = again()
    book.look(42, None)
    book.look(52, 42)
    book = again(book.of(), when=60)
    book.look(62, None)
    book.hold(63, holder("a"))
    book.look(72, 62)
    one = continuing(book)
    assert (one.counted_ns, one.gap_ns) == (6 * S + 10 * S + 10 * S, 32 * S + 10 * S)


def test_one_that_had_ended_and_was_not_final_keeps_what_was_counted() -> None:
    """Its energy was still to come when podgpu ended."""
    book = Book()
    book.hold(1, holder("a"))
    book.look(2, None, energy=1000)
    book.look(7, 2, process("a", busy=S), busy=S, energy=2000)
    book.look(10, 7, process("a", busy=S), busy=S, energy=2500)
    book.hold(11, holder("b"))
    given_out = book.look(12, 10, process("a", busy=S, there=False), busy=S, energy=None)
    [waits] = container(given_out, "a").closing
    assert (waits.end, waits.counted_ns, waits.busy_ns) == (at(11), 9 * S, 3 * S)
    assert book.usage().ended == ()
    book = again(given_out)
    [ended] = [one for one in book.usage().ended if one.subject.pod == "a"]
    assert (ended.start, ended.end, ended.counted_ns, ended.gap_ns) == (at(2), at(11), 9 * S, 0)
    assert (ended.busy_ns, ended.id) == (3 * S, waits.id)
    assert container(book.of(), "a").closing == ()


def test_the_end_of_one_with_nothing_in_it_is_reported_if_it_was_reported_of() -> None:
    """Else its row would stay open."""
    one = holding("a", GPU, start=at(10), until=at(10), held=0)
    book = again(account(GPU, used("a", start=at(10), uid="uid-a", holding=one), until=at(10)))
    book.look(42, None)
    book.look(50, 42)
    book.accounts.expire(at(102.1))
    [ended] = book.usage().ended
    assert (ended.start, ended.end, ended.counted_ns, ended.gap_ns) == (at(10), at(10), 0, 0)
