"""Converters for command-line values, used as `type` of `argparse` options."""

import argparse

from config.value_types import Duration, FormatError, ListenAddress


def address(text: str) -> ListenAddress:
    """Parse a listen address.

    Raises:
        ArgumentTypeError: the text is not a listen address.
    """
    try:
        return ListenAddress.parse(text)
    except FormatError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def duration(text: str) -> Duration:
    """Parse a duration.

    Raises:
        ArgumentTypeError: the text is not a duration.
    """
    try:
        return Duration.parse(text)
    except FormatError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
