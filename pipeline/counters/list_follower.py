"""Reads the counters list, logs its problems, and passes on each new plan."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from config.schema import Counters
from pipeline.counters.list_source import Connect, ListUnavailableError, Origin, origin_of
from pipeline.counters.plan_builder import default_plan, planned, warning
from pipeline.fields import FieldPlan

DEFAULT_TEXT: Final = "podgpu reads its default fields instead"
KEPT_TEXT: Final = "the previous list stays in use"

Take: TypeAlias = Callable[[FieldPlan, bool], Awaitable[None]]
"""Applies a plan. The second argument is whether a user requested a reload, which is logged."""


class CountersFollower:
    """Reads the list of one `counters` setting, and follows its changes.

    Args:
        setting: where the list is, and which fields are read in addition.
        connect: function that opens a session with an API server.
        log: the logger for problems.
        count: function that counts a reload by its result.
    """

    def __init__(
        self,
        setting: Counters,
        connect: Connect,
        log: logging.Logger,
        count: Callable[[str], None],
    ) -> None:
        self._setting = setting
        self._origin = origin_of(setting, connect)
        self._log = log
        self._count = count
        self._text: str | None = None
        self._fault: object = None
        self._asked = False

    async def first(self, fallback: str) -> FieldPlan | None:
        """Read the list for the first time.

        Args:
            fallback: what podgpu uses if there is no usable list, as text for messages.

        Returns:
            The plan; None if no row of the list can be used, or if the list is not available now.
            Without a configured list, the default plan.

        Raises:
            ListUnavailableError: podgpu cannot start without the list, and it cannot be read.
        """
        if self._origin is None:
            return default_plan(self._setting)
        try:
            self._text = await self._origin.read()
        except ListUnavailableError as error:
            if self._origin.vital:
                raise
            self._fault = error.dedup_key
            self._log.warning("%s; %s; retrying", error, fallback)
            return None
        return await self._parse(self._origin, self._text, fallback)

    async def follow(self, take: Take) -> None:
        """Pass on the new plan each time the list changes, until cancelled.

        A list that cannot be used is logged, and the previous plan stays valid. Returns immediately
        if no list is configured.
        """
        if self._origin is None:
            return
        with self._origin.watching:
            while True:
                await self._origin.wait()
                asked, self._asked = self._asked, False
                plan = await self._reread(self._origin, asked)
                if plan is not None:
                    await take(plan, asked)

    def ask(self) -> bool:
        """Request that the list is read again, changed or not; return whether one is configured."""
        if self._origin is None:
            return False
        self._asked = True
        self._origin.ask()
        return True

    async def _reread(self, origin: Origin, asked: bool) -> FieldPlan | None:
        try:
            text = await origin.read()
        except ListUnavailableError as error:
            if error.dedup_key != self._fault or asked:
                self._log.warning("%s; %s", error, KEPT_TEXT)
                self._count("refused")
            self._fault = error.dedup_key
            return None
        recovered, self._fault = self._fault is not None, None
        if recovered:
            self._log.info("%s: can be read again", origin.place)
        # After a fault, an unchanged list is passed on too, because the fault counted as a refusal.
        if text == self._text and not (asked or recovered):
            return None
        self._text = text
        plan = await self._parse(origin, text, KEPT_TEXT)
        if plan is None:
            self._count("refused")
        return plan

    async def _parse(self, origin: Origin, text: str, fallback: str) -> FieldPlan | None:
        # In a thread, because a list may have a megabyte.
        reading = await asyncio.to_thread(planned, text, self._setting)
        if message := warning(origin.place, reading, fallback):
            self._log.warning("%s", message)
        return reading.plan
