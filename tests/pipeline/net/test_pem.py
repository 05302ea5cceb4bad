"""Tests of the certificates and keys of a TLS client."""

import errno
import os

import pytest
from cryptography.hazmat.primitives import serialization

from pipeline.net.pem import PemError, client_context
from tests.support.web import authority, certificate, pem

CA = authority("server").cert_pem.bytes()
CHAIN, KEY = pem(certificate("clients", "podgpu"))


def encrypted(key: bytes) -> bytes:
    loaded = serialization.load_pem_private_key(key, None)
    return loaded.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )


@pytest.mark.parametrize("ca", [None, CA])
@pytest.mark.parametrize(("cert", "key"), [(None, None), (CHAIN, KEY)])
def test_valid_certificates_and_keys_make_a_context(
    ca: bytes | None, cert: bytes | None, key: bytes | None
) -> None:
    context = client_context(ca, cert, key)
    assert context.check_hostname
    if ca is not None:
        assert len(context.get_ca_certs()) == 1


@pytest.mark.parametrize(
    ("ca", "cert", "key", "part", "message"),
    [
        (b"nothing", None, None, "ca", "has no usable certificate in PEM format"),
        (b"", None, None, "ca", "has no usable certificate in PEM format"),
        (CA, b"nothing", KEY, "cert", "has no usable certificate in PEM format"),
        (CA, KEY, KEY, "cert", "has no usable certificate in PEM format"),
        (CA, CHAIN, b"nothing", "key", "has no usable key in PEM format"),
        (CA, CHAIN, CHAIN, "key", "has no usable key in PEM format"),
        (CA, CHAIN, pem(certificate("clients", "b"))[1], "key", "is not the key of the certif"),
        (CA, CHAIN, encrypted(KEY), "key", "is encrypted, and podgpu has no passphrase"),
    ],
)
def test_an_error_says_which_part_is_invalid_and_why(
    ca: bytes, cert: bytes | None, key: bytes | None, part: str, message: str
) -> None:
    with pytest.raises(PemError, match=message) as caught:
        client_context(ca, cert, key)
    assert caught.value.part == part


@pytest.mark.parametrize(("ca", "part"), [(CA, "ca"), (None, "cert")])
def test_r7_without_free_descriptors_the_error_is_temporary_and_names_a_part(
    ca: bytes | None, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(os, "memfd_create", none_left)
        with pytest.raises(PemError, match="TLS library: Too many open files") as caught:
            client_context(ca, CHAIN, KEY)
    assert caught.value.part == part
    assert client_context(ca, CHAIN, KEY).check_hostname
