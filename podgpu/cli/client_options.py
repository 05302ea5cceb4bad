"""Options of commands that query a daemon which uses TLS or requires a password.

podgpu imports this module for every command, so this module imports almost nothing.
`daemon_client` reads the files that the options name, and sends the request.
"""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from pipeline.base.errors import PermanentError

LOCAL: Final = "http://localhost:9400"
"""The address at which a daemon listens by default."""

PASSWORD: Final = "PODGPU_PASSWORD"  # noqa: S105 -- the variable's name
"""The environment variable that can contain the password. No option can contain it."""

_OPTIONS: Final = {
    "ca_file": (
        "FILE",
        "CA certificate to verify the server's certificate with; default: those of this machine",
    ),
    "cert_file": ("FILE", "client certificate to present"),
    "key_file": ("FILE", "private key of the client certificate"),
    "user": (
        "NAME",
        f"user name; the password comes from --password-file or the variable {PASSWORD}",
    ),
    "password_file": ("FILE", "file with the password as its only line"),
}


def add_access(
    parser: argparse.ArgumentParser,
    default: Any = None,
    title: str = "a daemon with TLS or a password",
) -> None:
    """Add the options to a command that queries a server. `access_of` reads their values.

    Args:
        parser: the parser of the command.
        default: default of the options; `argparse.SUPPRESS` for a subcommand of a command that has
            these options too.
        title: heading of the options in the help text.
    """
    group = parser.add_argument_group(
        title,
        "Each FILE and NAME can be set by an environment variable instead, such as PODGPU_CA_FILE.",
    )
    for name, (metavar, help_text) in _OPTIONS.items():
        group.add_argument(_option(name), metavar=metavar, default=default, help=help_text)
    group.add_argument(
        "--insecure",
        action="store_true",
        default=default or False,
        help="accept any certificate, and send a password over plain HTTP",
    )
    # --password is refused with an error that names the alternatives, and is hidden from --help.
    group.add_argument(
        "--password", type=_refuse_password, default=argparse.SUPPRESS, help=argparse.SUPPRESS
    )


def _refuse_password(_: str) -> NoReturn:
    raise argparse.ArgumentTypeError(
        f"other users of this machine could read it: use --password-file or the variable {PASSWORD}"
    )


@dataclass(frozen=True, slots=True)
class CredentialOption:
    """The value of an option or of an environment variable, and where it comes from.

    Attributes:
        value: a path, a user name, or the password. `repr` does not show it.
        origin: name of the option or variable, for messages.
        option: whether an option gave the value; if not, a variable did.
    """

    value: str = field(repr=False)
    origin: str
    option: bool


@dataclass(frozen=True, slots=True)
class Access:
    """How to connect to a daemon: TLS and credentials. Files are named, but not read yet.

    Attributes:
        ca_file: CA certificate to verify the daemon's certificate with; None for the CA
            certificates of this machine.
        cert_file: client certificate; None if none is presented.
        key_file: private key of the client certificate; set if and only if `cert_file` is set.
        user: user name; None for no authentication.
        password_file: file with the user's password; None if `password` has it.
        password: the user's password; None if `password_file` is set.
        insecure: whether any certificate is accepted, and a password is sent over plain HTTP.
    """

    ca_file: CredentialOption | None = None
    cert_file: CredentialOption | None = None
    key_file: CredentialOption | None = None
    user: CredentialOption | None = None
    password_file: CredentialOption | None = None
    password: CredentialOption | None = None
    insecure: bool = False


NO_ACCESS_OPTIONS: Final = Access()
"""Access without certificates and credentials."""


def access_of(arguments: argparse.Namespace, environ: Mapping[str, str]) -> Access:
    """Return the access that options and environment variables set. Options have precedence.

    Args:
        arguments: result of a parser to which `add_access` added the options.
        environ: the environment; `PODGPU_CA_FILE`, `PODGPU_CERT_FILE`, `PODGPU_KEY_FILE`,
            `PODGPU_USER`, `PODGPU_PASSWORD_FILE` and `PODGPU_PASSWORD` are read. An empty variable
            counts as unset.

    Raises:
        PermanentError: the combination is invalid. The message contains no password.
    """
    given: dict[str, CredentialOption] = {}
    for name in _OPTIONS:
        option, variable = getattr(arguments, name), f"PODGPU_{name.upper()}"
        if option is not None:
            given[name] = CredentialOption(option, _option(name), option=True)
        elif value := environ.get(variable):
            given[name] = CredentialOption(value, variable, option=False)
    if environ.get(PASSWORD):
        file = given.get("password_file")
        if file is None:
            given["password"] = CredentialOption(environ[PASSWORD], PASSWORD, option=False)
        elif not file.option:
            raise PermanentError(f"{PASSWORD} and {file.origin} are both set: unset one")
    access = Access(**given, insecure=arguments.insecure)
    _check_combination(access)
    return access


def _check_combination(access: Access) -> None:
    for one, other, missing in (
        (access.cert_file, access.key_file, "--key-file"),
        (access.key_file, access.cert_file, "--cert-file"),
    ):
        if one is not None and other is None:
            raise PermanentError(
                f"{one.origin} needs {missing}: give both the certificate and its private key"
            )
    if access.insecure and access.ca_file is not None and access.ca_file.option:
        raise PermanentError("--ca-file and --insecure exclude each other: give only one")
    secret = access.password_file or access.password
    if access.user is None:
        if secret is not None:
            raise PermanentError(f"{secret.origin} needs --user")
        return
    name = access.user.value
    # RFC 7617, 2: a colon ends the name. The text after it may be a password: do not repeat it.
    if not name or ":" in name or not name.isprintable():
        raise PermanentError(
            f"{access.user.origin}: a user name must not be empty, and must not contain a colon "
            "or unprintable characters; give the password with --password-file or the variable "
            f"{PASSWORD}"
        )
    if secret is None:
        raise PermanentError(
            f"{access.user.origin} needs a password: give --password-file or the variable "
            f"{PASSWORD}"
        )


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
