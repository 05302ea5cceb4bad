"""Kubernetes' rules for the keys of annotations and the names of Nodes and pods."""

import re
from typing import Final

_RESERVED: Final = ("kubernetes.io", "k8s.io")
"""Kubernetes reserves keys of these domains, and of their subdomains."""

_LABEL: Final = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")


def is_subdomain(text: str) -> bool:
    """Return whether a text is a DNS subdomain (RFC 1123), as names of Nodes are."""
    return len(text) <= 253 and _SUBDOMAIN.fullmatch(text) is not None


def is_pod(namespace: str, name: str) -> bool:
    """Return whether a namespace and a name are valid for a pod, and so safe in a URL path."""
    label = len(namespace) <= 63 and "." not in namespace
    return label and is_subdomain(namespace) and is_subdomain(name)


def key_problem(key: str) -> str:
    """Return the problem of an annotation key and its fix; empty if the key is valid.

    A valid key has a name of up to 63 characters, and optionally a DNS subdomain and a slash before
    it. The API server compares the subdomain in lower case.
    """
    prefix, slash, name = key.rpartition("/")
    if slash and not is_subdomain(prefix.lower()):
        return f'"{key}": before the slash, give a domain of yours, such as example.com/topology'
    if len(name) > 63 or _NAME.fullmatch(name) is None:
        return (
            f'"{key}": the name must have 1 to 63 characters of A-Z, a-z, 0-9, -, _ and ., '
            "and begin and end with a letter or a digit"
        )
    owner = next((o for o in _RESERVED if f".{prefix.lower()}".endswith(f".{o}")), None)
    if owner is not None:
        return f'"{key}": keys of {owner} are reserved for Kubernetes; use a domain of yours'
    return ""
