"""What is wrong with a ledger's file."""


class LedgerError(Exception):
    """The ledger can't be had; the text names the place, what is wrong and the mend.

    Attributes:
        path: the file.
        problem: what is wrong.
        fix: what to do about it.
        reason: a word for it, for a label.
    """

    def __init__(self, path: str, problem: str, fix: str, *, reason: str = "other") -> None:
        super().__init__(f"{path}: {problem}; {fix}")
        self.path = path
        self.problem = problem
        self.fix = fix
        self.reason = reason


class CorruptError(LedgerError):
    """It is no ledger any more: damaged, or something else altogether."""


class ForeignError(LedgerError):
    """It is a sound file of somebody else's, or of a newer podgpu: it is left as it is."""
