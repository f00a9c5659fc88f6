"""Command lines of the control plane's processes: which flags, and why each.

Starts nothing. The flags follow kubeadm's for a control plane, without flags that need more than loopback.
"""

from dataclasses import dataclass
from pathlib import Path

from tests.cluster.control_plane.certificates import Certificate

HOST = "127.0.0.1"
ISSUER = "https://kubernetes.default.svc.cluster.local"
SERVICE_NETWORK = "10.96.0.0/16"

# The audit log must show a client's requests between two writes. So it records every request once, at its end.
AUDIT_POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: Metadata
"""


@dataclass(frozen=True)
class Ports:
    """Where each process listens on loopback."""

    etcd: int
    etcd_peer: int
    apiserver: int
    scheduler: int
    controller_manager: int

    @property
    def url(self) -> str:
        return f"https://{HOST}:{self.apiserver}"


@dataclass(frozen=True)
class Certificates:
    """Every certificate that a command line names."""

    authority: Path
    apiserver: Certificate
    components: Certificate
    service_accounts: Certificate
    etcd_authority: Path
    etcd: Certificate
    etcd_client: Certificate
    kubelet_client: Certificate


def etcd(binary: Path, data: Path, ports: Ports, certificates: Certificates) -> list[str]:
    peer = f"http://{HOST}:{ports.etcd_peer}"
    client = f"https://{HOST}:{ports.etcd}"
    return [
        str(binary),
        "--name=etcd",
        f"--data-dir={data}",
        # the data is deleted after the run, so it need not survive a power failure
        "--unsafe-no-fsync",
        # enough for a bench of 5,000 nodes, with the history between two compactions
        f"--quota-backend-bytes={8 * 1024**3}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=etcd={peer}",
        "--client-cert-auth",
        f"--trusted-ca-file={certificates.etcd_authority}",
        f"--cert-file={certificates.etcd.certificate}",
        f"--key-file={certificates.etcd.key}",
        "--log-level=warn",
    ]


def apiserver(
    binary: Path,
    ports: Ports,
    certificates: Certificates,
    audit_policy: Path,
    audit_log: Path,
    folder: Path,
    service_network: str,
) -> list[str]:
    return [
        str(binary),
        f"--bind-address={HOST}",
        f"--advertise-address={HOST}",
        f"--secure-port={ports.apiserver}",
        # an API server on loopback cannot be an endpoint of the kubernetes Service
        "--endpoint-reconciler-type=none",
        f"--service-cluster-ip-range={service_network}",
        f"--etcd-servers=https://{HOST}:{ports.etcd}",
        f"--etcd-cafile={certificates.etcd_authority}",
        f"--etcd-certfile={certificates.etcd_client.certificate}",
        f"--etcd-keyfile={certificates.etcd_client.key}",
        f"--client-ca-file={certificates.authority}",
        *_serving(certificates.apiserver),
        f"--cert-dir={folder}",
        # logs and exec, for nodes with a kubelet
        f"--kubelet-client-certificate={certificates.kubelet_client.certificate}",
        f"--kubelet-client-key={certificates.kubelet_client.key}",
        f"--kubelet-certificate-authority={certificates.authority}",
        "--kubelet-preferred-address-types=InternalIP",
        # as kubeadm sets it: vendors' device plugins need it
        "--allow-privileged=true",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--service-account-issuer={ISSUER}",
        f"--service-account-signing-key-file={certificates.service_accounts.key}",
        f"--service-account-key-file={certificates.service_accounts.key}",
        f"--audit-policy-file={audit_policy}",
        f"--audit-log-path={audit_log}",
        # no rotation: requests from the start of a bench must still be there at its end (megabytes)
        "--audit-log-maxsize=100000",
    ]


def scheduler(binary: Path, kubeconfig: Path, ports: Ports, certificates: Certificates) -> list[str]:
    return [str(binary), *_controller(kubeconfig, ports.scheduler, certificates)]


def controller_manager(binary: Path, kubeconfig: Path, ports: Ports, certificates: Certificates) -> list[str]:
    return [
        str(binary),
        *_controller(kubeconfig, ports.controller_manager, certificates),
        # the user system:kube-controller-manager lacks rights for some of its controllers
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={certificates.service_accounts.key}",
        f"--root-ca-file={certificates.authority}",
        # deleting a namespace takes one call per kind: the default of 20 a second would slow a suite down
        "--kube-api-qps=200",
        "--kube-api-burst=400",
    ]


def _controller(kubeconfig: Path, port: int, certificates: Certificates) -> list[str]:
    """Shared by the scheduler and the controller manager."""
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--client-ca-file={certificates.authority}",
        f"--bind-address={HOST}",
        f"--secure-port={port}",
        *_serving(certificates.components),
        # one of each: an election would only wait for the lease of an earlier process to expire
        "--leader-elect=false",
    ]


def _serving(certificate: Certificate) -> list[str]:
    return [f"--tls-cert-file={certificate.certificate}", f"--tls-private-key-file={certificate.key}"]
