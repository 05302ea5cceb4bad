"""Why a connection to the runtime ends."""


class ConnectionLostError(Exception):
    """The connection is of no use any more; the text says why, for people."""


class ProtocolError(ConnectionLostError):
    """The other side says what no runtime says."""
