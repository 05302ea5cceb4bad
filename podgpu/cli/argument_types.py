"""Values on the command line that have a form of their own, for `argparse`."""

import argparse

from config.value_types import Duration, FormatError, ListenAddress


def address(text: str) -> ListenAddress:
    """Read where a server listens.

    Raises:
        ArgumentTypeError: it is no listen address.
    """
    try:
        return ListenAddress.parse(text)
    except FormatError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def duration(text: str) -> Duration:
    """Read a length of time.

    Raises:
        ArgumentTypeError: it is no duration.
    """
    try:
        return Duration.parse(text)
    except FormatError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
