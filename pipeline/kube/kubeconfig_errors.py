"""What is said of a kubeconfig that can't be used: what is wrong, and nothing that stands in it.

Its library repeats what it stumbles over: an entry with its password, a key that was written where
a file's name belongs, all that a plugin wrote. So its texts are recognised and said anew; of one
that isn't known, the kind of error alone is told.
"""

import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pipeline.base.safe_text import line

_LONGEST: Final = 100
"""Characters of a name; a certificate or key in its place has more."""

_NOT_REPEATED: Final = (
    "; what it wrote may be a secret and is not repeated: run it by hand where podgpu runs"
)
_FORM_FIX: Final = "see that it is readable and has a current-context"

_OF_PLUGINS: Final[Sequence[tuple[str, str]]] = (
    (r"exec: process returned (-?\d{1,5})\b", "ended with status {}"),
    (r"exec: failed to decode process output", "wrote no JSON"),
    (r"exec: malformed response\. missing key '(\w{1,20})'", "gave an answer without {}"),
    (r"exec: plugin api version", "gave an answer of another apiVersion than exec names"),
)
_INVALID: Final = r"Invalid kube-config file\. Expected "
_LIST: Final = r".*(contexts|clusters|users)"
_OF_FILES: Final[Sequence[tuple[str, str]]] = (
    (r"exec: malformed request\. missing key '(\w{1,20})'", "exec has no {}"),
    (r"exec: malformed request\. invalid args list", "the args of exec are no list"),
    (rf"{_INVALID}key ([A-Za-z-]{{1,40}}) in ", "there is no {}"),
    (
        rf"{_INVALID}(?:only one )?object with name {_LIST} list$",
        "{} has not the one that is meant",
    ),
    (rf"{_INVALID}{_LIST} to be a list$", "{} is no list"),
    (rf"{_INVALID}all values in {_LIST} list to have 'name' key$", "{} has one without a name"),
    (r"oidc: missing configuration$", "auth-provider has no config"),
    (r"oidc: JWT tokens should contain 3 ", "id-token is no JWT"),
    (r"oidc: No valid id-token", "id-token has expired, and there is no refresh-token"),
    (r"oidc: failed to ", "the server that renews tokens refuses"),
)
_ABSENT: Final = "File does not exists: "


def program(command: str) -> str:
    """Return a plugin's name for messages: what follows a space may be a secret."""
    name, space, _ = command.strip().partition(" ")
    return line(name, _LONGEST) + (" ..." if space else "")


def describe_error(error: Exception, path: Path, commands: Sequence[str] = ()) -> str:
    """Return what is wrong and what mends it.

    Args:
        error: what the library raised.
        path: the kubeconfig.
        commands: programs that were started to have credentials, in that order.
    """
    plugin = f"the plugin {program(commands[-1])} " if commands else ""
    text = str(error)
    if said := _match_text(text, _OF_PLUGINS):
        return f"{plugin or 'the plugin '}{said}{_NOT_REPEATED}"
    if isinstance(error, OSError) and commands and error.filename == commands[-1]:
        reason = _reason(error)
        return f"{plugin}can't be started: {reason}; give a command that is there where podgpu runs"
    # Once a plugin has answered, files are what can still be missing.
    if said := _of_a_file(error, path) or _of_yaml(error):
        return said
    if plugin:
        return f"{plugin}gave an answer that can't be used ({type(error).__name__}){_NOT_REPEATED}"
    if isinstance(error, UnicodeError):
        return "it, or a token of it, is no text"
    said = _match_text(text, _OF_FILES) or f"it has not that form ({type(error).__name__})"
    return f"{said}; {_FORM_FIX}"


def _match_text(text: str, forms: Sequence[tuple[str, str]]) -> str:
    for pattern, said in forms:
        if found := re.match(pattern, text, re.DOTALL):
            return said.format(*found.groups())
    return ""


def _of_a_file(error: Exception, path: Path) -> str:
    text = str(error)
    if text.startswith(_ABSENT):
        name = _file_suffix(text.removeprefix(_ABSENT), path)
        return (
            f"a certificate or key that it names isn't there{name}; mount it, "
            "or put it in as certificate-authority-data, client-certificate-data, client-key-data"
        )
    if not isinstance(error, OSError):
        return ""
    if error.filename == str(path):
        return f"{_reason(error)}; see that it exists and is readable"
    if error.filename is None:
        return f"{_reason(error)}; see what podgpu may write to and whom it reaches"
    if _is_temporary(Path(os.fsdecode(error.filename))):
        return f"{_reason(error)}: {line(str(error.filename))}; let podgpu write there"
    return f"tokenFile: {_reason(error)}; give the path of a file, and mount it"


def _is_temporary(path: Path) -> bool:
    """Whether it would be a file of the library's own, for a certificate that is embedded."""
    prefix = tempfile.gettempprefix()
    return path.parent == Path(tempfile.gettempdir()) and path.name.startswith(prefix)


def _file_suffix(name: str, path: Path) -> str:
    """Return a file's name for a message; nothing where it may be what belongs into the file."""
    given = name.removeprefix(f"{path.parent}/")
    return f" ({line(name)})" if len(given) <= _LONGEST else ""


def _reason(error: OSError) -> str:
    return line(error.strerror or type(error).__name__)


def _of_yaml(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    number = getattr(mark, "line", None)
    # Its text has what it stumbled over in it.
    return f"it is no YAML, see line {number + 1}" if isinstance(number, int) else ""
