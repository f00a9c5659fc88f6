"""What is known of the cluster's nodes and of this machine before a way to the nodes is chosen. Values only. Pure.

Names of labels and provider IDs: kind, k3d, k3s and minikube, as their nodes have them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Json = Mapping[str, Any]
Command = tuple[str, ...]


@dataclass(frozen=True)
class Node:
    """A Node, as far as images depend on it. runtime: as `containerd://2.1.4`. provider: `spec.providerID`, often empty.

    images: names that its kubelet reports, of which these are the biggest fifty at most.
    """

    name: str
    architecture: str = "amd64"
    os: str = "linux"
    runtime: str = "containerd://2.1.4"
    kubelet: str = "v1.37.2"
    boot_id: str = ""
    machine_id: str = ""
    provider: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    images: tuple[str, ...] = ()


@dataclass(frozen=True)
class Containerd:
    """A containerd of this machine. boot_id, machine_id: as it sees them. root: its file system as seen from here."""

    boot_id: str
    machine_id: str
    root: str = ""


@dataclass(frozen=True)
class Machine:
    """programs: which of those that a way may need are in PATH. containerds: by socket, of those that are asked for.

    as_root: what stands before a command that only root may run: nothing, `sudo`; None where neither is possible.
    ctr: containerd's client, for where a distribution has none of its own.
    """

    programs: frozenset[str] = frozenset()
    containerds: Mapping[str, Containerd] = field(default_factory=dict)
    as_root: Command | None = ()
    ctr: str = "ctr"


def nodes_of(listed: Json) -> tuple[Node, ...]:
    """Of a NodeList as kubectl prints it, sorted by name."""
    return tuple(sorted(map(_node, listed.get("items") or []), key=lambda node: node.name))


def linux(nodes: Iterable[Node]) -> tuple[Node, ...]:
    """Those that get an agent unless a value says otherwise."""
    return tuple(node for node in nodes if node.os == "linux")


def _node(item: Json) -> Node:
    metadata, status = item["metadata"], item.get("status") or {}
    info = status.get("nodeInfo") or {}
    names = (name for image in status.get("images") or [] for name in image.get("names") or [])
    return Node(
        name=metadata["name"],
        architecture=info.get("architecture", ""),
        os=info.get("operatingSystem", "linux"),
        runtime=info.get("containerRuntimeVersion", ""),
        kubelet=info.get("kubeletVersion", ""),
        boot_id=info.get("bootID", ""),
        machine_id=info.get("machineID", ""),
        provider=(item.get("spec") or {}).get("providerID", ""),
        labels=metadata.get("labels") or {},
        images=tuple(names),
    )
