"""What must come of a story, in exact fractions, by docs/usage.md and docs/sinks/ledger.md alone.

Nothing of `pipeline` is used here. Where a quantity is split, podgpu counts in whole units: each
`Sum` knows by how many of them it may differ (`slack`), which is 0 while all parts were whole.

Where the docs leave something open, this is the reading that was taken:

- A process of which nobody could read the cgroup is the only holder's, whether it runs or not.
- A container that begins to hold a device before a look is told of, and after it was taken, goes on
  where that look shows its processes gone. Stories have no such moments.
- What is known to have ended after the last look ended then, also if podgpu ended meanwhile.
- A holding is final only once the energy of its time is known, or after three usage intervals,
  even if a look that is told of after them was taken within them.
- A container whose process is seen once more after its end, as ended, begins another holding.
- An account whose device isn't found for five minutes begins anew with its next look; a restart
  before that lets it go on after all.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from tests.accounting.account import CARRIERS, Account
from tests.accounting.given_out import (
    Act,
    Begun,
    Erred,
    Filed,
    Given,
    Killed,
    Look,
    Looked,
    Rebooted,
    Running,
    S,
    Set,
    Shown,
    Spoken,
    Stopped,
    Story,
    Who,
)
from tests.accounting.parts import (
    SLICES,
    Clocks,
    Episode,
    Had,
    Holders,
)

PATIENCE: Final = 10 * S
"""For how long looks are passed over at a start, while a source hasn't spoken."""
FOUND_WITHIN: Final = 300 * S
"""Within which time after a start a device must be found to go on."""
NOT_SET: Final = S // 2
"""Up to so much a wall time that is kept isn't taken for one of a clock that was set since."""
ONE_ERROR: Final = 5 * S
"""What two sources tell of one GPU with the same code within so long is one error."""


class Reference:
    """Plays acts, and knows what must come of them."""

    def __init__(self, story: Story) -> None:
        self.clocks = Clocks(story.wall)
        self.sources = set(story.sources)
        self.claims = story.claims
        self.unheard: dict[Who, dict[str, float | None]] = {}
        self.accounts: dict[str, Account] = {}
        self.running: dict[Who, dict[str, float | None]] = {}
        self.given: dict[str, Who] = {}
        self.filed: dict[str, Who] = {}
        self.boot = 0
        self.now = self.heard = -1
        self.up = False
        self.begun = self.offset_begun = 0
        self.known: set[str] = set()
        self.looked = False
        self.errors: dict[tuple[str, int], tuple[int, str]] = {}
        self.listed = False
        self.unshown: list[tuple[Counter[int], int]] = []
        """Where errors were counted before a source told of looks, and their codes."""

    def play(self, acts: Iterable[Act]) -> None:
        for moment, heard, act in in_order(acts):
            if not isinstance(act, Killed | Stopped | Set) and moment > self.now:
                self._pass(moment)  # what became of that time nobody has heard of
            self.now = moment
            if isinstance(act, Look) and heard > self.heard:
                # All looks that are told of together come too late for what is final by then.
                self.heard = heard
                for account in self.accounts.values():
                    account.close(heard)
            match act:
                case Look():
                    self._look(act)
                case _:
                    self._do(moment, act)

    def _pass(self, now: int) -> None:
        """Let time go on."""
        for account in self.accounts.values() if self.up else ():
            account.expire(now)
            late = account.away and not account.renewed and now > self.begun + FOUND_WITHIN
            if late and account.abandon():
                account.boot, account.moved = self.boot, 0
                account.offset = self.offset_begun

    def _do(self, at: int, act: Act) -> None:
        match act:
            case Begun(running=running, given=given, devices=devices, late=late):
                for name, account in self.accounts.items():
                    if account.boot != self.boot:
                        account.rebase(at, self.clocks.offset)
                        if name in devices:
                            account.cap(at)
                    # The file has it so at once.
                    self._date(account, self.clocks.offset)
                self.begun, self.offset_begun, self.up = at, self.clocks.offset, True
                self.unheard = {who: dict(holds) for who, holds in running.items()}
                self.running = {} if late or "runtime" not in self.sources else self.unheard
                self.given, self.filed = dict(given), {}
                if "kubelet" not in self.sources:
                    self.given = {}
                self.listed = "kubelet" in self.sources or (not late and "runtime" in self.sources)
                for account in self.accounts.values():
                    account.begin_run()
                self.known, self.looked = set(), False
                self._show(at, devices)
                self._held(at)
            case Looked():
                # Its looks may be passed over, and all the same somebody looks.
                self.unshown.clear()
                if not self.looked:
                    self.looked = True
                    self._write()
            case Spoken():
                self.running, self.listed = self.unheard, True
                self._held(at)
            case Running(who=who, holds=holds):
                self.running.pop(who, None)
                if holds is not None:
                    self.running[who] = dict(holds)
                self._held(at)
            case Given(device=device, who=who):
                self.given.pop(device, None)
                if who is not None:
                    self.given[device] = who
                self._held(at)
            case Filed(device=device, who=who):
                self.filed.pop(device, None)
                if who is not None:
                    self.filed[device] = who
                self._held(at)
            case Rebooted():
                self.boot += 1
            case Shown(devices=devices):
                self._show(at, devices)
                self._held(at)
            case Killed() | Stopped():
                self.up = False
                for counts, code in self.unshown:
                    counts[code] -= 1
                    if not counts[code]:
                        del counts[code]
                self.unshown.clear()
            case Set(by=by):
                self.clocks.offset += by
            case Erred():
                self._err(act)
            case _:
                pass

    def _show(self, at: int, devices: Iterable[str]) -> None:
        """Some devices can be found now: what wasn't for so long after a start goes on nowhere."""
        self.known |= set(devices)
        for device in devices:
            account = self.accounts.get(device)
            if account is not None and account.away:
                account.cap(at)
                account.away = False
        self._write()

    def _write(self) -> None:
        """Accounts are on the page, and so in the file, once a source looks at devices."""
        for account in self.accounts.values() if self.looked else ():
            if account.away or account.written:
                continue
            account.written = True
            self._date(account, self.offset_begun)

    def _date(self, account: Account, offset: int) -> None:
        """Let an account have moments of this boot."""
        account.boot, account.moved = self.boot, 0
        if abs(offset - account.offset) > NOT_SET:
            account.offset = offset

    def _held(self, at: int) -> None:
        for device, account in self.accounts.items():
            holders, last = self._holders(device), account.cuts[-1] if account.cuts else None
            if last is None or (last.holders, last.listed) != (holders, self.informed):
                account.hold(at, holders, self.informed)

    @property
    def informed(self) -> bool:
        """Whether what nobody is told to hold is free: a claim may name what nobody can find."""
        nameless = self.claims and any(device not in self.known for device in self.given)
        return self.listed and not nameless

    def _holders(self, device: str) -> Holders:
        found = {who: held[device] for who, held in self.running.items() if device in held}
        if device in self.given:
            found = {self.given[device]: None}
        elif device in self.filed and not found:
            found = {self.filed[device]: None}
        return found

    def _look(self, look: Look) -> None:
        if look.device not in self.accounts:
            account = self.accounts[look.device] = Account(look.device)
            if look.device in CARRIERS:
                account.instances = [
                    self.accounts[name] for name in SLICES if name in self.accounts
                ]
            account.hold(look.at, self._holders(look.device), self.informed)
        account = self.accounts[look.device]
        if not self.looked:
            self.looked = True
            self._write()
        account.boot, account.moved = self.boot, 0
        if not account.cuts:
            account.hold(look.at, self._holders(look.device), self.informed)
        account.look(look, self.clocks)

    def _err(self, act: Erred) -> None:
        """An error strikes all that held or used the device at that moment."""
        account = self.accounts.get(act.device)
        key, said = (act.device, act.code), self.errors.get((act.device, act.code))
        self.errors[key] = (act.when, act.by)
        if said is not None and said[1] != act.by and act.when - said[0] <= ONE_ERROR:
            return
        if account is None or account.away:
            return
        if account.first is None:
            for who, had in account.had.items():
                if had.pending and who in self._holders(act.device):
                    self._strike(had, had.episodes[-1], act.code)
            return
        account.expire(act.when)
        for had in account.had.values():
            if not had.pending:
                for episode in had.episodes[-2:]:
                    there = episode.start <= act.when
                    if there and (episode.end is None or act.when < episode.end):
                        self._strike(had, episode, act.code)

    def _strike(self, had: Had, episode: Episode, code: int) -> None:
        for counts in (had.xids, episode.xids):
            counts[code] += 1
            if not self.looked:
                self.unshown.append((counts, code))


def in_order(acts: Iterable[Act]) -> Sequence[tuple[int, int, "Act | Look"]]:
    """Return what happens in the order of its moments, each with the one at which it was told.

    Looks are passed over while a source has yet to speak.
    """
    found: list[tuple[int, int, Act | Look]] = []
    waits, asked = False, None
    for act in acts:
        if isinstance(act, Begun):
            waits, asked = act.late, None
        elif isinstance(act, Spoken):
            waits = False
        elif isinstance(act, Looked) and waits:
            asked = act.at if asked is None else asked
            if act.at < asked + PATIENCE:
                found.append((act.at, act.at, act))
                continue
        if isinstance(act, Looked):
            found.append((act.at, act.at, act))
            if act.by != "gpus":
                continue  # who stands earlier in the configuration is believed
            found.extend((one.at, act.at, one) for one in act.looks)
        elif isinstance(act, Erred):
            found.append((act.when, act.at, act))
        else:
            found.append((act.at, act.at, act))
    found.sort(key=lambda each: each[0])
    return found
