"""Describes the problem of an unusable kubeconfig, without repeating its content.

The error texts of the library repeat what it cannot read: an entry with its password, a key in
place of a file name, the output of a credential plugin. This module recognises the texts and
replaces them. For an unknown text, it reports only the type of the error.
"""

import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pipeline.base.safe_text import line

_MAX_NAME: Final = 100
"""Maximum length of a name in a message; a certificate or a key in its place is longer."""

_NOT_REPEATED: Final = (
    "; its output may contain secrets and is not shown: run it by hand where podgpu runs"
)
_FORM_FIX: Final = "check that it is readable and has a current-context"

_PLUGIN_ERRORS: Final[Sequence[tuple[str, str]]] = (
    (r"exec: process returned (-?\d{1,5})\b", "ended with status {}"),
    (r"exec: failed to decode process output", "returned no JSON"),
    (r"exec: malformed response\. missing key '(\w{1,20})'", "returned a response without {}"),
    (r"exec: plugin api version", "returned a response whose apiVersion differs from that of exec"),
)
_INVALID: Final = r"Invalid kube-config file\. Expected "
_LIST: Final = r".*(contexts|clusters|users)"
_FILE_ERRORS: Final[Sequence[tuple[str, str]]] = (
    (r"exec: malformed request\. missing key '(\w{1,20})'", "exec has no {}"),
    (r"exec: malformed request\. invalid args list", "the args of exec are not a list"),
    (rf"{_INVALID}key ([A-Za-z-]{{1,40}}) in ", "there is no {}"),
    (
        rf"{_INVALID}(?:only one )?object with name {_LIST} list$",
        "{} does not have the entry that current-context names",
    ),
    (rf"{_INVALID}{_LIST} to be a list$", "{} is not a list"),
    (rf"{_INVALID}all values in {_LIST} list to have 'name' key$", "{} has an entry without name"),
    (r"oidc: missing configuration$", "auth-provider has no config"),
    (r"oidc: JWT tokens should contain 3 ", "id-token is not a JWT"),
    (r"oidc: No valid id-token", "id-token has expired, and there is no refresh-token"),
    (r"oidc: failed to ", "the server that renews tokens refuses the request"),
)
_ABSENT: Final = "File does not exists: "


def program(command: str) -> str:
    """Return a plugin's command for messages: the part before the first space, `...` for the rest.

    The rest may contain a secret.
    """
    name, space, _ = command.strip().partition(" ")
    return line(name, _MAX_NAME) + (" ..." if space else "")


def describe_error(error: Exception, path: Path, commands: Sequence[str] = ()) -> str:
    """Return the problem of a kubeconfig and its fix, as text for users.

    Args:
        error: the library's error.
        path: path of the kubeconfig.
        commands: the credential plugins that were started, in order.
    """
    plugin = f"the credential plugin {program(commands[-1])} " if commands else ""
    text = str(error)
    if problem := _match_text(text, _PLUGIN_ERRORS):
        return f"{plugin or 'the credential plugin '}{problem}{_NOT_REPEATED}"
    if isinstance(error, OSError) and commands and error.filename == commands[-1]:
        reason = _reason(error)
        return f"{plugin}cannot be started: {reason}; give a command that exists where podgpu runs"
    # After a plugin has succeeded, a file may still be missing.
    if problem := _file_problem(error, path) or _yaml_problem(error):
        return problem
    if plugin:
        return f"{plugin}returned an unusable response ({type(error).__name__}){_NOT_REPEATED}"
    if isinstance(error, UnicodeError):
        return "the file, or a token in it, is not text"
    problem = (
        _match_text(text, _FILE_ERRORS) or f"it is not a valid kubeconfig ({type(error).__name__})"
    )
    return f"{problem}; {_FORM_FIX}"


def _match_text(text: str, forms: Sequence[tuple[str, str]]) -> str:
    for pattern, problem in forms:
        if found := re.match(pattern, text, re.DOTALL):
            return problem.format(*found.groups())
    return ""


def _file_problem(error: Exception, path: Path) -> str:
    text = str(error)
    if text.startswith(_ABSENT):
        # There may be a certificate or a key in place of the name of the file.
        name = text.removeprefix(_ABSENT)
        shown = len(name.removeprefix(f"{path.parent}/")) <= _MAX_NAME
        suffix = f" ({line(name)})" if shown else ""
        return (
            f"a certificate or key file that it names does not exist{suffix}; mount the file, or "
            "use certificate-authority-data, client-certificate-data and client-key-data"
        )
    if not isinstance(error, OSError):
        return ""
    if error.filename == str(path):
        return f"{_reason(error)}; check that the file exists and is readable"
    if error.filename is None:
        return f"{_reason(error)}; check which folders podgpu can write and which hosts it reaches"
    # The library writes embedded certificates to temporary files.
    folder, name = os.path.split(os.fsdecode(error.filename))
    if folder == tempfile.gettempdir() and name.startswith(tempfile.gettempprefix()):
        return f"{_reason(error)}: {line(str(error.filename))}; let podgpu write there"
    return f"tokenFile: {_reason(error)}; give the path of a file, and mount it"


def _reason(error: OSError) -> str:
    return line(error.strerror or type(error).__name__)


def _yaml_problem(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    number = getattr(mark, "line", None)
    # The text of the error contains the invalid content.
    return f"it is not valid YAML, see line {number + 1}" if isinstance(number, int) else ""
