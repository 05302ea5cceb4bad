"""What a command takes to ask a daemon behind TLS or a password.

It loads next to nothing: every command loads it. `client_tls` reads what is named here, and
`daemon_client` asks.
"""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from pipeline.base.errors import PermanentError

LOCAL: Final = "http://localhost:9400"
"""Where a daemon listens by default."""

PASSWORD: Final = "PODGPU_PASSWORD"  # noqa: S105 -- the variable's name
"""The variable that may hold the password itself; no option does."""

_OPTIONS: Final = {
    "ca_file": ("FILE", "authority that signed the daemon's certificate; else this machine's"),
    "cert_file": ("FILE", "client certificate to show"),
    "key_file": ("FILE", "its key"),
    "user": ("NAME", f"with the password from --password-file or the variable {PASSWORD}"),
    "password_file": ("FILE", "its only line is the password"),
}


def add_access(parser: argparse.ArgumentParser, default: Any = None) -> None:
    """Add the options to a command that asks a daemon; `access_of` takes them from there.

    Args:
        parser: the command's.
        default: `argparse.SUPPRESS` for a command below one that has them too.
    """
    group = parser.add_argument_group(
        "a daemon behind TLS or a password",
        "Each FILE and NAME may stand in a variable instead, such as PODGPU_CA_FILE.",
    )
    for name, (metavar, told) in _OPTIONS.items():
        group.add_argument(_option(name), metavar=metavar, default=default, help=told)
    group.add_argument(
        "--insecure",
        action="store_true",
        default=default or False,
        help="take any certificate, and send a password over plain HTTP",
    )
    # Else nothing would be said of what to do instead.
    group.add_argument(
        "--password", type=_refused, default=argparse.SUPPRESS, help=argparse.SUPPRESS
    )


def _refused(_: str) -> NoReturn:
    raise argparse.ArgumentTypeError(
        f"others on this machine could read it: use --password-file or the variable {PASSWORD}"
    )


@dataclass(frozen=True, slots=True)
class CredentialOption:
    """A value, and where it comes from.

    Attributes:
        value: a path, a name, or the password, which is not in the text of this object.
        origin: the option or the variable, for people.
        option: it is an option.
    """

    value: str = field(repr=False)
    origin: str
    option: bool


@dataclass(frozen=True, slots=True)
class Access:
    """How a daemon is asked. Nothing has been read yet.

    Attributes:
        ca_file: what its certificate is checked with; None for this machine's authorities.
        cert_file: our own certificate; None to show none.
        key_file: its key; there if `cert_file` is.
        user: who asks; None for nobody.
        password_file: where the user's password is; None if it is in `password`.
        password: the user's, if there is no file.
        insecure: any certificate will do, and a password may be sent over plain HTTP.
    """

    ca_file: CredentialOption | None = None
    cert_file: CredentialOption | None = None
    key_file: CredentialOption | None = None
    user: CredentialOption | None = None
    password_file: CredentialOption | None = None
    password: CredentialOption | None = None
    insecure: bool = False


NO_ACCESS_OPTIONS: Final = Access()
"""Like anybody."""


def access_of(arguments: argparse.Namespace, environ: Mapping[str, str]) -> Access:
    """Return what the options and the variables say; an option counts more than its variable.

    Args:
        arguments: of a parser that `add_access` has seen.
        environ: `PODGPU_CA_FILE`, `PODGPU_CERT_FILE`, `PODGPU_KEY_FILE`, `PODGPU_USER`,
            `PODGPU_PASSWORD_FILE` and `PODGPU_PASSWORD`; an empty one counts as none.

    Raises:
        PermanentError: they don't go together. No text has a password in it.
    """
    given = {name: _given(name, arguments, environ) for name in _OPTIONS}
    if environ.get(PASSWORD):
        if given["password_file"] is None:
            given["password"] = CredentialOption(environ[PASSWORD], PASSWORD, option=False)
        elif not given["password_file"].option:
            raise PermanentError(
                f"{PASSWORD} and {given['password_file'].origin} are both set: unset one"
            )
    access = Access(**given, insecure=arguments.insecure)
    _together(access)
    return access


def _given(
    name: str, arguments: argparse.Namespace, environ: Mapping[str, str]
) -> CredentialOption | None:
    option: str | None = getattr(arguments, name)
    if option is not None:
        return CredentialOption(option, _option(name), option=True)
    variable = f"PODGPU_{name.upper()}"
    value = environ.get(variable, "")
    return CredentialOption(value, variable, option=False) if value else None


def _together(access: Access) -> None:
    for one, other, missing in (
        (access.cert_file, access.key_file, "--key-file"),
        (access.key_file, access.cert_file, "--cert-file"),
    ):
        if one is not None and other is None:
            raise PermanentError(
                f"{one.origin} needs {missing}: a certificate and its key go together"
            )
    if access.insecure and access.ca_file is not None and access.ca_file.option:
        raise PermanentError("--ca-file and --insecure: give one, to check or not to check")
    secret = access.password_file or access.password
    if access.user is None:
        if secret is not None:
            raise PermanentError(f"{secret.origin} needs --user: whose password is it?")
        return
    name = access.user.value
    # RFC 7617, 2: a colon ends the name. What follows may be the password, so it isn't repeated.
    if not name or ":" in name or not name.isprintable():
        raise PermanentError(
            f"{access.user.origin}: a user's name has no colon and is not empty; the password goes "
            f"into --password-file or the variable {PASSWORD}"
        )
    if secret is None:
        raise PermanentError(
            f"{access.user.origin} needs a password: give --password-file or the variable "
            f"{PASSWORD}"
        )


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
