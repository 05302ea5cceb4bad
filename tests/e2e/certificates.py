"""Certificates for both ends of a connection, in files that can be replaced."""

from pathlib import Path

import trustme


class Certificates:
    """Certificates of a server and a client for mutual TLS."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.renew()

    def renew(self) -> None:
        """Write new certificates, signed by new authorities."""
        server, clients = trustme.CA(), trustme.CA()
        self._write("server-ca.crt", server.cert_pem)
        self._write("client-ca.crt", clients.cert_pem)
        self._write_pair("receiver", server.issue_cert("127.0.0.1"))
        self._write_pair("sender", clients.issue_cert("podgpu"))

    @property
    def receiver(self) -> dict[str, str]:
        """Options of the Collector."""
        return {
            "cert_file": self._at("receiver.crt"),
            "key_file": self._at("receiver.key"),
            "client_ca_file": self._at("client-ca.crt"),
        }

    @property
    def sender(self) -> dict[str, str]:
        """Options of podgpu."""
        return {
            "cert_file": self._at("sender.crt"),
            "key_file": self._at("sender.key"),
            "ca_file": self._at("server-ca.crt"),
        }

    def _at(self, name: str) -> str:
        return str(self._folder / name)

    def _write_pair(self, name: str, leaf: trustme.LeafCert) -> None:
        self._write(f"{name}.crt", leaf.cert_chain_pems[0])
        self._write(f"{name}.key", leaf.private_key_pem)

    def _write(self, name: str, blob: trustme.Blob) -> None:
        new = self._folder / f"{name}.new"
        blob.write_to_path(str(new))
        new.replace(self._folder / name)
