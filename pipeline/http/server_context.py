"""What all HTTP listeners of the process share. This module does not import aiohttp."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pipeline.base.version import VERSION
from pipeline.http.allowed_hosts import Hosts
from pipeline.http.builtin_pages import Check, Front, Pages
from pipeline.http.client_shares import ClientShares
from pipeline.http.fair_queue import FairQueue
from pipeline.http.limits import Limits

if TYPE_CHECKING:
    from pipeline.http.access import AccessChecker

_STARTS_PER_ROUND: Final = 4
"""Number of requests, and of requests for probes, that begin to be processed in one round of the
event loop. Other tasks of the process wait for no more than that."""


@dataclass(eq=False)
class ServerContext:
    """What all listeners share.

    Attributes:
        node: name of the node, for the index page.
        health: check for `/healthz` and `/health`: the event loop and the join work.
        ready: check for `/readyz`: there is data to show.
        pages: handlers and titles of further pages of every listener, by path.
        front_page: makes the index page; None for a list of links.
        version: podgpu's version, for the index page.
        limits: limits for all listeners together.
        hosts: host names that requests may use.
        access: access rules of all listeners; None if everyone has access over plain HTTP. They may
            be changed at any time. New connections use the new rules. If TLS has changed, existing
            connections end with their next response.
        accounting: counts the connections and bytes of all listeners.
        turns: queue of requests that wait to be processed.
        probe_turns: queue of requests for the probe paths that wait to be processed.
    """

    node: str
    health: Check
    ready: Check
    pages: Pages = field(default_factory=dict)
    front_page: Front | None = None
    version: str = VERSION
    limits: Limits = field(default_factory=Limits)
    hosts: Hosts = field(default_factory=Hosts)
    access: "AccessChecker | None" = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.accounting = ClientShares(self.limits)
        self.turns = FairQueue(_STARTS_PER_ROUND)
        self.probe_turns = FairQueue(_STARTS_PER_ROUND)
