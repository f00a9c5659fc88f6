"""Certificates of the control plane: one for each process and one for the admin.

Two authorities, as kubeadm has them: etcd asks for a certificate of its own, because access to etcd bypasses RBAC.
Kubernetes reads a client certificate's common name as the user and its organization as the group.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import trustme

MASTERS = "system:masters"

# Names of the API server: by address from here, by Service name from pods.
_SERVER_NAMES = ("127.0.0.1", "localhost", "kubernetes.default.svc")


@dataclass(frozen=True)
class Identity:
    """A user and its group, as Kubernetes will see it."""

    user: str
    group: str | None = None


@dataclass(frozen=True)
class Certificate:
    """Files of one certificate and its key (mode 0600), both PEM."""

    certificate: Path
    key: Path


class Authority:
    """A certificate authority for the lifetime of the control plane; it creates its files in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700)
        self._ca = trustme.CA(organization_name="nodedevice")
        self.file = folder / "ca.crt"
        write_private(self.file, self._ca.cert_pem.bytes())

    def server(self, name: str, *addresses: str) -> Certificate:
        """A certificate for a server on loopback and these addresses; also valid as a client certificate."""
        leaf = self._ca.issue_cert(*_SERVER_NAMES, *addresses, common_name=name, organization_name=name)
        return self._write(name, leaf)

    def client(self, name: str, identity: Identity) -> Certificate:
        """A client certificate for the user and groups of `identity`."""
        # trustme marks the list of host names critical, and Go refuses such a list when it is empty
        leaf = self._ca.issue_cert(
            "client.invalid", common_name=identity.user, organization_name=identity.group or "nodedevice-test"
        )
        return self._write(name, leaf)

    def _write(self, name: str, leaf: trustme.LeafCert) -> Certificate:
        files = Certificate(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        write_private(files.certificate, b"".join(pem.bytes() for pem in leaf.cert_chain_pems))
        write_private(files.key, leaf.private_key_pem.bytes())
        return files


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read, from its first byte on."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, 0o600)
        file.write(data)
