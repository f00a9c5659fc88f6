"""Addresses of published programs and their checksums, by version and kind of machine.

Addresses only; tests/cluster/build/downloads.py fetches.
"""

import platform
import re
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.build.pins import family_of

# lines of sha256sum; checksums in this file are not downloaded
_PINNED = Path(__file__).parent / "checksums.txt"
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
_KUBERNETES = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kubelet")
_HEX = re.compile(r"\b[0-9a-f]{64}\b")


@dataclass(frozen=True)
class Published:
    """A published file. Addresses are without `https://`.

    checksums: the address that names its SHA-256. member: of the archive that the file is; None: it is the program itself.
    """

    address: str
    checksums: str
    member: str | None = None

    @property
    def host(self) -> str:
        return self.address.split("/")[0]

    @property
    def file_name(self) -> str:
        return self.address.rsplit("/", 1)[1]

    def pinned(self) -> str | None:
        """Its SHA-256 as pinned by this project, if any."""
        lines = (line.split() for line in _PINNED.read_text().splitlines() if not line.startswith("#"))
        return next((words[0] for words in lines if words[1:] == [self.address]), None)

    def checksum_in(self, text: str) -> str | None:
        """The SHA-256 in a response from `checksums`: a bare one, or lines of sha256sum."""
        names: tuple[list[str], ...] = ([], [self.file_name], [f"*{self.file_name}"])
        lines = [line for line in text.splitlines() if line.split()[1:] in names]
        found = (_HEX.search(line) for line in lines)
        return next((match[0] for match in found if match), None)


def published(binary: str) -> Published | None:
    """The file of a program at the requested version; None if its project publishes none for this kind of machine."""
    machine = _MACHINES.get(platform.machine())
    if machine is None:
        return None
    if binary in _KUBERNETES:
        address = f"dl.k8s.io/release/{family_of(binary).version}/bin/linux/{machine}/{binary}"
        return Published(address, f"{address}.sha256")
    if binary == "etcd":
        version = family_of(binary).version
        release, name = f"github.com/etcd-io/etcd/releases/download/{version}", f"etcd-{version}-linux-{machine}"
        return Published(f"{release}/{name}.tar.gz", f"{release}/SHA256SUMS", f"{name}/etcd")
    if binary in ("helm", "helm3"):
        address = f"get.helm.sh/helm-{family_of(binary).version}-linux-{machine}.tar.gz"
        return Published(address, f"{address}.sha256sum", f"linux-{machine}/helm")
    return None
