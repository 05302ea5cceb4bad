"""SQL for the kind of an owner and for its facts: see `pipeline.model.owners`."""

from pipeline.archive.database import literal
from pipeline.model import OwnerKind, uid_prefixes

_OTHER_KINDS: tuple[OwnerKind, ...] = ("job", "container")


def kind_of_owner(uid: str) -> str:
    """Return an SQL expression for the kind of the owner with a uid; `pod` for an unknown uid.

    Args:
        uid: an SQL expression.
    """
    cases = "".join(
        f" WHEN starts_with({uid}, {literal(prefix)}) THEN {literal(kind)}"
        for kind in _OTHER_KINDS
        for prefix in uid_prefixes(kind)
    )
    return f"CASE{cases} ELSE 'pod' END"
