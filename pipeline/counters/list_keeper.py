"""Keeps the list: reads it, says what is wrong with it, hands on each plan that it comes to."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from config.schema import Counters
from pipeline.counters.list_source import Connect, ListUnavailableError, Origin, origin_of
from pipeline.counters.plan_builder import default_plan, planned, warning
from pipeline.fields import FieldPlan

DEFAULT_TEXT: Final = "podgpu's usual fields are read instead"
KEPT_TEXT: Final = "the list in force stays"

Take: TypeAlias = Callable[[FieldPlan, bool], Awaitable[None]]
"""Takes a plan over; True for one that somebody asked for, who waits for an answer."""


class CountersKeeper:
    """One setting's list, for as long as the setting is in force.

    Args:
        setting: where the list is, and what is read beside it.
        connect: joins a session with an API server.
        log: where complaints go.
        count: counts an attempt at a change, by its result.
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

    async def first(self, stands: str) -> FieldPlan | None:
        """Read the list for the first time.

        Args:
            stands: what is read where there is no list, for people.

        Returns:
            The plan; None if nothing of the list can be used, or if it can't be had now.

        Raises:
            UnheardError: there has to be one, and it can't be read.
        """
        if self._origin is None:
            return default_plan(self._setting)
        try:
            self._text = await self._origin.read()
        except ListUnavailableError as error:
            if self._origin.vital:
                raise
            self._fault = error.dedup_key
            self._log.warning("%s; %s, and it is tried again until it works", error, stands)
            return None
        return await self._parse(self._origin, self._text, stands)

    async def follow(self, take: Take) -> None:
        """Hand on each plan that the list comes to, until cancelled."""
        if self._origin is None:
            return
        async with self._origin:
            while True:
                await self._origin.wait()
                asked, self._asked = self._asked, False
                plan = await self._reread(self._origin, asked)
                if plan is not None:
                    await take(plan, asked)

    def ask(self) -> bool:
        """Read the list again, changed or not; return whether there is one."""
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
        back, self._fault = self._fault is not None, None
        if back:
            self._log.info("%s: can be read again", origin.place)
        # One that is back is handed on though it is the same: it had been refused meanwhile.
        if text == self._text and not (asked or back):
            return None
        self._text = text
        plan = await self._parse(origin, text, KEPT_TEXT)
        if plan is None:
            self._count("refused")
        return plan

    async def _parse(self, origin: Origin, text: str, stands: str) -> FieldPlan | None:
        # In a thread, for the sake of a list of a megabyte.
        reading = await asyncio.to_thread(planned, text, self._setting)
        if told := warning(origin.place, reading, stands):
            self._log.warning("%s", told)
        return reading.plan
