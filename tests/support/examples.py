"""The number of examples of a property test, scaled by the profile of Hypothesis."""

from hypothesis import settings

_USUAL = 100
"""Examples of the default profile, for which the counts in the tests are written."""


def examples(count: int) -> int:
    """Return how many examples a test has in the current profile; at least five if it has as many.

    Args:
        count: the number of examples with the default profile.
    """
    return max(min(count, 5), count * settings().max_examples // _USUAL)
