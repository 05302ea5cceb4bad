"""Errors that end the connection to the runtime."""


class ConnectionLostError(Exception):
    """The connection cannot be used any more; the text contains the reason."""


class ProtocolError(ConnectionLostError):
    """The runtime sent an invalid message."""
