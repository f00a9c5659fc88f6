"""The facts about the cluster's nodes and this machine that decide about a way to the nodes. Values only. Pure.

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

    images: names that its kubelet reports: by default the biggest fifty.
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
    """A containerd of this machine. boot_id, machine_id: in its own view. root: its file system in this process's view."""

    boot_id: str
    machine_id: str
    root: str = ""


@dataclass(frozen=True)
class Machine:
    """programs: programs in PATH that a way may need. containerds: by socket.

    as_root: the prefix of a command that needs root: nothing, or `sudo`; None if neither works.
    ctr: containerd's client, for distributions without their own.
    """

    programs: frozenset[str] = frozenset()
    containerds: Mapping[str, Containerd] = field(default_factory=dict)
    as_root: Command | None = ()
    ctr: str = "ctr"


def nodes_of(listed: Json) -> tuple[Node, ...]:
    """Nodes of a NodeList as kubectl prints it, sorted by name."""
    return tuple(sorted(map(_node, listed.get("items") or []), key=lambda node: node.name))


def linux(nodes: Iterable[Node]) -> tuple[Node, ...]:
    """Nodes that get an agent with default values."""
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
