"""Prepares a control plane before its first process starts: folder, ports, certificates, kubeconfigs, command lines.

Starts nothing.
"""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path

from tests.cluster.control_plane import components, kubeconfigs
from tests.cluster.control_plane.certificates import MASTERS, Authority, Identity
from tests.cluster.control_plane.components import Certificates, Ports
from tests.cluster.control_plane.health import trusting
from tests.cluster.errors import FolderError
from tests.cluster.node_player import player
from tests.cluster.nodes import PLAYED_BY_US
from tests.cluster.processes.processes import Process

CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")

_USERS = {
    "admin": Identity("nodedevice-test:admin", MASTERS),
    "kube-scheduler": Identity("system:kube-scheduler"),
    "kube-controller-manager": Identity("system:kube-controller-manager"),
    "kubelets": Identity("nodedevice-test:kubelets", MASTERS),
}


@dataclass(frozen=True)
class Layout:
    """A control plane, ready to be started."""

    folder: Path
    ports: Ports
    authority: Authority
    admin_kubeconfig: Path
    audit_log: Path
    etcd_data: Path
    etcd_tls: ssl.SSLContext
    tls: ssl.SSLContext
    etcd: Process
    apiserver: Process
    scheduler: Process
    controller_manager: Process
    node_player: Process

    @property
    def processes(self) -> tuple[Process, ...]:
        """All processes, in the order in which they start; they end in reverse order."""
        return self.etcd, self.apiserver, *self.controllers

    @property
    def controllers(self) -> tuple[Process, ...]:
        """Processes that watch the API server."""
        return self.scheduler, self.controller_manager, self.node_player


def claim(folder: Path) -> None:
    """Make `folder`, mode 0700. Raises FolderError when it cannot be made, or holds something."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        is_empty = not any(folder.iterdir())
    except OSError as exc:
        raise FolderError(folder, exc.strerror or str(exc)) from exc
    if not is_empty:
        raise FolderError(folder, "not empty")


def lay_out(
    folder: Path, binaries: Mapping[str, Path], ports: Ports, service_network: str = components.SERVICE_NETWORK
) -> Layout:
    """Fill a claimed folder.

    binaries: a path for each name in CONTROL_PLANE.
    service_network: range of the Services' addresses.
    """
    logs, data = folder / "logs", folder / "etcd"
    logs.mkdir()
    data.mkdir(mode=0o700)
    audit_policy, audit_log = folder / "audit-policy.yaml", folder / "audit.log"
    audit_policy.write_text(components.AUDIT_POLICY)
    authority = Authority(folder / "certificates")
    certificates = _issue(authority, Authority(folder / "etcd-certificates"), api_address(service_network))
    kubeconfig = _write_kubeconfigs(folder, ports.url, authority)
    manager = "kube-controller-manager"
    commands = {
        "etcd": components.etcd(binaries["etcd"], data, ports, certificates),
        "kube-apiserver": components.apiserver(
            binaries["kube-apiserver"], ports, certificates, audit_policy, audit_log, folder, service_network
        ),
        "kube-scheduler": components.scheduler(
            binaries["kube-scheduler"], kubeconfig["kube-scheduler"], ports, certificates
        ),
        manager: components.controller_manager(binaries[manager], kubeconfig[manager], ports, certificates),
    }
    process = {name: Process(name, command, logs / f"{name}.log") for name, command in commands.items()}
    return Layout(
        folder=folder,
        ports=ports,
        authority=authority,
        admin_kubeconfig=kubeconfig["admin"],
        audit_log=audit_log,
        etcd_data=data,
        etcd_tls=trusting(certificates.etcd_authority, certificates.etcd_client),
        tls=trusting(authority.file),
        etcd=process["etcd"],
        apiserver=process["kube-apiserver"],
        scheduler=process["kube-scheduler"],
        controller_manager=process[manager],
        node_player=player(kubeconfig["kubelets"], PLAYED_BY_US, logs / "node-player.log"),
    )


def api_address(service_network: str) -> str:
    """The API server's address for pods: the first of the network is the Service `kubernetes`'s."""
    return str(ip_network(service_network)[1])


def _issue(authority: Authority, etcd_authority: Authority, service_address: str) -> Certificates:
    return Certificates(
        authority=authority.file,
        apiserver=authority.server("kube-apiserver", service_address),
        components=authority.server("components"),
        service_accounts=authority.client("service-accounts", Identity("nodedevice-test:service-accounts")),
        etcd_authority=etcd_authority.file,
        etcd=etcd_authority.server("etcd"),
        etcd_client=etcd_authority.client("kube-apiserver-etcd-client", Identity("kube-apiserver")),
        kubelet_client=authority.client("kube-apiserver-kubelet-client", Identity("kube-apiserver", MASTERS)),
    )


def _write_kubeconfigs(folder: Path, url: str, authority: Authority) -> dict[str, Path]:
    return {
        name: kubeconfigs.write_for_certificate(
            folder / f"{name}.kubeconfig", url, authority.file, authority.client(name, identity)
        )
        for name, identity in _USERS.items()
    }
