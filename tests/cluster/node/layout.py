"""Prepares a real node before its first process starts: folders, certificates, configurations, command lines.

Starts nothing.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.build import images
from tests.cluster.control_plane import kubeconfigs
from tests.cluster.control_plane.certificates import Identity
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.node import containerd, kubelet
from tests.cluster.node import network as node_network
from tests.cluster.node.containerd import RuntimeSettings
from tests.cluster.node.kubelet import KubeletSettings
from tests.cluster.node.machine import Machine, MachineProcess
from tests.cluster.node.network import NodeNetwork

BINARIES = (
    *("containerd", "containerd-shim-runc-v2", "ctr"),
    *("bridge", "host-local", "loopback"),
    *("runc", "busybox", "checker", "kubelet"),
)


@dataclass(frozen=True)
class NodeOptions:
    """nri: enable the runtime's NRI socket. validator: enforce required plugins. status_seconds: interval of the
    kubelet's reports of its Node; upstream's default is 10. network: number of the node's network; a free one by
    default.
    """

    nri: bool = True
    validator: bool = True
    status_seconds: int = 10
    network: int | None = None


@dataclass(frozen=True)
class NodeLayout:
    """A node, ready to be started."""

    name: str
    folder: Path
    network: NodeNetwork
    cgroup: str
    machine: Machine
    archive: Path
    ctr: Path
    containerd: MachineProcess
    kubelet: MachineProcess


def choose_key() -> str:
    """A key that makes a run's bridge and cgroup unique; a bridge's name has 15 characters at most."""
    return uuid.uuid4().hex[:8]


def lay_out(
    control_plane: ControlPlane, name: str, folder: Path, binaries: Mapping[str, Path], key: str, options: NodeOptions
) -> NodeLayout:
    """Fill a claimed folder. binaries: a path for each name in BINARIES."""
    (folder / "logs").mkdir()
    network = node_network.choose(key, options.network)
    machine = Machine(folder / "m")
    archive = folder / "images.tar"
    images.write_archive(archive, binaries["busybox"], binaries["checker"])
    return NodeLayout(
        name=name,
        folder=folder,
        network=network,
        cgroup=f"nd{key}",
        machine=machine,
        archive=archive,
        ctr=binaries["ctr"],
        containerd=_containerd(folder, machine, binaries, network, options),
        kubelet=_kubelet(control_plane, name, folder, machine, binaries["kubelet"], network, f"nd{key}", options),
    )


def _containerd(
    folder: Path, machine: Machine, binaries: Mapping[str, Path], network: NodeNetwork, options: NodeOptions
) -> MachineProcess:
    cni = folder / "cni"
    cni.mkdir()
    (cni / "10-bridge.conflist").write_text(
        containerd.network(network.bridge, network.subnet, network.last_pod_address)
    )
    settings = RuntimeSettings(
        cni_bin_dirs=[binaries["bridge"].parent],
        cni_conf_dir=cni,
        runc=binaries["runc"],
        nri=options.nri,
        validator=options.validator,
    )
    (folder / "containerd.toml").write_text(containerd.configuration(settings))
    command = [str(binaries["containerd"]), "--config", str(folder / "containerd.toml")]
    return machine.process("containerd", command, folder / "logs" / "containerd.log")


def _kubelet(
    control_plane: ControlPlane,
    name: str,
    folder: Path,
    machine: Machine,
    binary: Path,
    network: NodeNetwork,
    cgroup: str,
    options: NodeOptions,
) -> MachineProcess:
    authority = control_plane.authority
    client = authority.client(f"kubelet-{name}", Identity(f"system:node:{name}", "system:nodes"))
    settings = KubeletSettings(
        node_name=name,
        address=network.address,
        cgroup=f"/{cgroup}",
        kubeconfig=kubeconfigs.write_for_certificate(
            folder / "kubelet.kubeconfig", control_plane.url, authority.file, client
        ),
        authority=authority.file,
        serving=authority.server(f"kubelet-serving-{name}", network.address),
        status_seconds=options.status_seconds,
    )
    configuration = folder / "kubelet.yaml"
    configuration.write_text(kubelet.configuration(settings))
    command = kubelet.command(binary, configuration, settings)
    return machine.process("kubelet", command, folder / "logs" / "kubelet.log")
