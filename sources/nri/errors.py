"""Why a connection to the runtime ends."""


class LostError(Exception):
    """The connection is of no use any more; the text says why, for people."""


class ProtocolError(LostError):
    """The other side says what no runtime says."""
