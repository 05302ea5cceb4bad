"""What the ledger sink declares about itself."""

from typing import Final

from pipeline.component.kind import HANGING_FILE, Kind

KIND: Final = Kind(
    summary="stores usage per container in an SQLite file, across restarts, for `podgpu usage`",
    options="sinks.ledger.options:Options",
    factory="sinks.ledger.sink:LedgerSink",
    doctor="sinks.ledger.doctor:examine",
    timeout_fix=HANGING_FILE,
)
