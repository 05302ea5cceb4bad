"""Expands environment variables in values: ``${NAME}`` and ``${NAME:-default}``."""

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_EXPANDED: Final = 1024 * 1024
"""The maximum number of characters of all expanded placeholders of a file together."""

# In this order: the escape `$${`, a well-formed placeholder, and any other `${`, which is an
# error. A default ends at the first `}` and contains no placeholder.
_TOKEN = re.compile(
    r"(?P<escape>\$\$\{)"
    r"|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>(?:(?!\$\{)[^}])*))?\}"
    r"|(?P<bad>\$\{)"
)


class ExpansionError(ValueError):
    """A value has placeholders that cannot be expanded. ``faults``: (message, hint) of each."""

    def __init__(self, faults: list[tuple[str, str]]) -> None:
        super().__init__(faults)
        self.faults = faults


class Environment:
    """Expands placeholders, and limits the total length of the expanded placeholders."""

    def __init__(self, variables: "Mapping[str, str]") -> None:
        self._variables = variables
        self._left = MAX_EXPANDED

    def expand(self, text: str) -> str:
        """Return ``text`` with every placeholder expanded and ``$${`` replaced by ``${``.

        Raises:
            ExpansionError: A variable without a default is unset or is not UTF-8, a placeholder
                is malformed, or all expanded placeholders of the file together are longer than
                ``MAX_EXPANDED`` characters.
        """
        if "${" not in text:
            return text
        faults: dict[tuple[str, str], None] = {}  # an ordered set

        def replacement(match: re.Match[str]) -> str:
            piece = self._piece(match, faults)
            self._left -= len(piece)
            if self._left < 0:
                problem = "the values from the environment are too long"
                raise ExpansionError([(problem, "use shorter values")])
            return piece

        expanded = _TOKEN.sub(replacement, text)
        if faults:
            raise ExpansionError(list(faults))
        return expanded

    def _piece(self, match: re.Match[str], faults: dict[tuple[str, str], None]) -> str:
        if match["escape"]:
            return "${"
        if match["bad"]:
            hint = "write ${NAME} or ${NAME:-default}, and $${ for a literal ${"
            faults["a placeholder is malformed", hint] = None
            return ""
        name, default = match["name"], match["default"]
        value = self._variables.get(name)
        if not value and default is not None:
            return default
        if value is None:
            hint = f"set it, or give a default: ${{{name}:-default}}"
            faults[f"the environment variable {name} is not set", hint] = None
            return ""
        try:
            value.encode()  # in a variable that is not UTF-8, Python has lone surrogates
        except UnicodeEncodeError:
            faults[f"the environment variable {name} is not UTF-8", "set it as UTF-8 text"] = None
            return ""
        return value
