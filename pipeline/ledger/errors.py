"""Errors of the ledger file."""


class LedgerError(Exception):
    """The ledger cannot be used. The text contains the path, the problem and the fix.

    Attributes:
        path: the file.
        problem: what is wrong.
        fix: what to do.
        reason: a short name of the problem, used as the value of a metric label.
    """

    def __init__(self, path: str, problem: str, fix: str, *, reason: str = "other") -> None:
        super().__init__(f"{path}: {problem}; {fix}")
        self.path = path
        self.problem = problem
        self.fix = fix
        self.reason = reason


class CorruptError(LedgerError):
    """The file is not a ledger: it is damaged, or has other contents."""

    def __init__(
        self, path: str, problem: str, fix: str = "restore the file from a valid copy"
    ) -> None:
        super().__init__(path, problem, fix, reason="corrupt")


class ForeignError(LedgerError):
    """The file is valid but belongs to another program or a newer podgpu; it is not changed."""
