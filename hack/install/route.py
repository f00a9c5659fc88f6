"""Decides how images get from this machine to the cluster's nodes; other modules carry it out. Pure.

A given REGISTRY comes first. kind, k3d and minikube have commands of their own. A node on this machine imports images
by its containerd. For all other clusters, the error names the three ways.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hack.install.errors import InstallError, NoRoute
from hack.install.facts import Command, Containerd, Machine, Node, linux

# the agent's directory on a node, by default of the chart
STATE_DIR = "/var/lib/nodedevice"
_ALL_IMAGES = ("--namespace", "k8s.io", "images")
_WAYS = """
  1. a cluster of kind, k3d or minikube: on the machine where that command created it
  2. a node that is this machine (k3s, RKE2, k0s, MicroK8s, kubeadm; containerd): there, as root or with sudo, where it is the only
     node. CONTAINERD=/path/to/containerd.sock names a socket in another place
  3. any cluster: `make install REGISTRY=registry.example.com/team`, a registry that you may push to and that the nodes pull
     from; one in the cluster by its address, as REGISTRY=10.43.0.10:5000
Nothing was changed."""


@dataclass(frozen=True)
class Access:
    """Access to images on nodes, to list and remove them. nodes: their names, for people.

    ctr: containerd's own client, up to `images`; None if only `listing` and `removing` are possible, with the name at
    the end.
    state: removes the agent's directory.
    """

    nodes: str
    state: Command
    ctr: Command | None = None
    listing: Command = ()
    removing: Command = ()


@dataclass(frozen=True)
class Route:
    """name: for people. loads: commands that import an archive, `{archive}`, on nodes; empty with a registry.

    has_digests: an image gets its name by digest on the node. access: of the nodes that this machine can reach; may
    be empty.
    """

    name: str
    loads: tuple[Command, ...] = ()
    access: tuple[Access, ...] = ()
    registry: str = ""
    has_digests: bool = False


@dataclass(frozen=True)
class _Distribution:
    """Location of a distribution's containerd. ctr: its own client; by default containerd's.

    kubelet: a part of its kubelet's version. label: of its nodes. Both are empty for all others.
    """

    name: str
    socket: str
    ctr: Command = ()
    kubelet: str = ""
    label: str = ""

    def has(self, node: Node) -> bool:
        return self.kubelet in node.kubelet and (not self.label or self.label in node.labels)


_K3S = "/run/k3s/containerd/containerd.sock"
DISTRIBUTIONS = (
    _Distribution("k3s", _K3S, ("k3s", "ctr"), kubelet="+k3s"),
    _Distribution("RKE2", _K3S, ("/var/lib/rancher/rke2/bin/ctr", "--address", _K3S), kubelet="+rke2"),
    _Distribution("k0s", "/run/k0s/containerd.sock", ("k0s", "ctr"), kubelet="+k0s"),
    _Distribution(
        "MicroK8s", "/var/snap/microk8s/common/run/containerd.sock", ("microk8s", "ctr"), label="microk8s.io/cluster"
    ),
    _Distribution("", "/run/containerd/containerd.sock"),
)
PROGRAMS = ("kind", "k3d", "minikube")


def sockets(nodes: Sequence[Node], named: str) -> tuple[str, ...]:
    """Possible sockets of these nodes' containerd on this machine. named: CONTAINERD, empty if not set."""
    return tuple(dict.fromkeys(_distribution(node, named).socket for node in linux(nodes)))


def choose(nodes: Sequence[Node], machine: Machine, registry: str = "", containerd: str = "") -> Route:
    """registry, containerd: REGISTRY and CONTAINERD, empty if not set. Raises NoRoute or InstallError."""
    ours = linux(nodes)
    if not ours:
        raise InstallError("the cluster has no Linux node", "add one; agents run on Linux alone")
    own = _own_command(ours)
    if registry:
        return Route(f"the registry {registry}", registry=registry, has_digests=True)
    if own:
        _check_program(own, machine)
        return own
    route = _on_this_machine(ours, machine, containerd)
    if len(route.access) < len(ours):
        raise NoRoute(*_refusal(ours, route, containerd, containerd in machine.containerds))
    if machine.as_root is None:
        raise InstallError(f"only root may bring images to {route.access[0].nodes}", "run as root, or install sudo")
    return route


def reachable(nodes: Sequence[Node], machine: Machine, containerd: str = "") -> tuple[Access, ...]:
    """Access to the nodes that this machine can reach, however their images got there; empty without any."""
    own = _own_command(linux(nodes))
    if own:
        return own.access if own.loads[0][0] in machine.programs else ()
    return _on_this_machine(linux(nodes), machine, containerd).access if machine.as_root is not None else ()


def architectures(nodes: Sequence[Node]) -> tuple[str, ...]:
    """Architectures of the nodes that get an agent, sorted."""
    return tuple(sorted({node.architecture for node in linux(nodes)}))


# -- clusters with a command of their own ---------------------------------------------------------------------------------


def _own_command(nodes: Sequence[Node]) -> Route | None:
    for route in (_kind, _k3d, _minikube):
        if found := route(nodes):
            return found
    return None


def _kind(nodes: Sequence[Node]) -> Route | None:
    """Provider IDs of its nodes: `kind://docker/CLUSTER/NODE`."""
    ids = [node.provider.removeprefix("kind://").split("/") for node in nodes if node.provider.startswith("kind://")]
    if len(ids) < len(nodes) or any(len(parts) != 3 for parts in ids):
        return None
    cluster = ids[0][1]
    load = ("kind", "load", "image-archive", "{archive}", "--name", cluster)
    access = tuple(_in_container(engine, node) for engine, _, node in ids)
    return Route(f"`kind load image-archive`, into the cluster {cluster}", (load,), access)


def _k3d(nodes: Sequence[Node]) -> Route | None:
    """Its nodes are named k3d-CLUSTER-server-0, k3d-CLUSTER-agent-0."""
    found = [re.fullmatch(r"k3d-(.+)-(server|agent)-\d+", node.name) for node in nodes]
    if not all(found) or found[0] is None or not all("+k3s" in node.kubelet for node in nodes):
        return None
    load = ("k3d", "image", "import", "{archive}", "--cluster", found[0][1])
    access = tuple(_in_container("docker", node.name) for node in nodes)
    return Route(f"`k3d image import`, into the cluster {found[0][1]}", (load,), access)


def _minikube(nodes: Sequence[Node]) -> Route | None:
    """Its nodes are labelled with the profile."""
    profiles = {node.labels.get("minikube.k8s.io/name", "") for node in nodes}
    if len(profiles) != 1 or "" in profiles:
        return None
    [profile] = profiles
    command = ("minikube", "--profile", profile)
    images = (*command, "image")
    access = [Access(node.name, (*command, "ssh", "--node", node.name, "--", "sudo", *_removal(""))) for node in nodes]
    access[0] = replace(access[0], listing=(*images, "ls"), removing=(*images, "rm"))
    return Route(f"`minikube image load`, profile {profile}", ((*images, "load", "{archive}"),), tuple(access))


def _in_container(engine: str, node: str) -> Access:
    """A node that is a container of docker's or podman's, with ctr in it."""
    inside = (engine, "exec", node)
    return Access(node, (*inside, *_removal("")), ctr=(*inside, "ctr", *_ALL_IMAGES))


def _check_program(route: Route, machine: Machine) -> None:
    program = route.loads[0][0]
    if program not in machine.programs:
        raise InstallError(
            f"this is a cluster of {program}, and {program} is not in PATH",
            f"install {program}, or name a registry as REGISTRY=registry.example.com/team",
        )


# -- nodes that are this machine ------------------------------------------------------------------------------------------


def _on_this_machine(nodes: Sequence[Node], machine: Machine, named: str) -> Route:
    """With access to the nodes whose containerd runs here; to none if it does not."""
    access, loads, names = [], [], []
    for node in nodes:
        distribution = _distribution(node, named)
        found = machine.containerds.get(distribution.socket)
        if found is None or not _is_of(node, found):
            continue
        prefix = machine.as_root or ()
        client = (*prefix, *(distribution.ctr or (machine.ctr, "--address", distribution.socket)))
        ctr = (*client, *_ALL_IMAGES)
        access.append(Access(node.name, (*prefix, *_removal(found.root)), ctr=ctr))
        loads.append((*ctr, "import", "{archive}"))
        names.append(f"`{' '.join(client)} images import`, into {node.name} on this machine")
    return Route("; ".join(names), tuple(loads), tuple(access), has_digests=True)


def _distribution(node: Node, named: str) -> _Distribution:
    if named:
        return _Distribution("", named)
    return next(each for each in DISTRIBUTIONS if each.has(node))


def _is_of(node: Node, containerd: Containerd) -> bool:
    """Whether that containerd is the node's: both see the same machine. A container on this machine has the same kernel."""
    if not node.runtime.startswith("containerd://") or not node.boot_id or node.boot_id != containerd.boot_id:
        return False
    return not (node.machine_id and containerd.machine_id) or node.machine_id == containerd.machine_id


def _removal(root: str) -> Command:
    return ("rm", "-rf", "--one-file-system", f"{root}{STATE_DIR}")


def _refusal(nodes: Sequence[Node], route: Route, named: str, answers: bool) -> tuple[str, str]:
    """The reasons why each way is closed, and its requirements."""
    here = {access.nodes for access in route.access}
    away = [node for node in nodes if node.name not in here]
    shown = ", ".join(f"{node.name} ({node.runtime})" for node in away[:3])
    more = f" and {len(away) - 3} more" if len(away) > 3 else ""
    if named and not answers:
        why = f"no response at CONTAINERD={named}, and images cannot be brought to {shown}{more}"
    elif named:
        why = f"the containerd at CONTAINERD={named} is not that of {shown}{more}"
    elif here:
        why = f"{', '.join(sorted(here))} is this machine, and {shown}{more} cannot be reached from here"
    else:
        why = f"images cannot be brought from this machine to {shown}{more}"
    return why, f"there are three ways{_WAYS}"
