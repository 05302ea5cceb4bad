"""What Kubernetes takes for the key of an annotation, and for the name of a Node."""

import re
from typing import Final

_RESERVED: Final = ("kubernetes.io", "k8s.io")
"""Domains whose keys are the project Kubernetes' own, with all below them."""

_LABEL: Final = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")


def is_subdomain(text: str) -> bool:
    """Whether a text is a DNS subdomain (RFC 1123), as names of Nodes are."""
    return len(text) <= 253 and _SUBDOMAIN.fullmatch(text) is not None


def key_problem(key: str) -> str:
    """Return what is wrong with a key and how to mend it; an empty text if nothing is.

    It is a qualified name: a name of up to 63 letters, before it a DNS subdomain and a slash where
    it belongs to somebody. The subdomain's case doesn't matter to the API server, which compares
    it in lower case.
    """
    prefix, slash, name = key.rpartition("/")
    if slash and not is_subdomain(prefix.lower()):
        return f'"{key}": before the slash stands a domain of yours, such as example.com/topology'
    if len(name) > 63 or _NAME.fullmatch(name) is None:
        return (
            f'"{key}": the name has 1 to 63 of A-Z, a-z, 0-9, -, _ and ., '
            "and begins and ends with a letter or a digit"
        )
    owner = next((o for o in _RESERVED if f".{prefix.lower()}".endswith(f".{o}")), None)
    if owner is not None:
        return f'"{key}": keys of {owner} are reserved to Kubernetes; take a domain of yours'
    return ""
