"""How images get to nodes: every kind of cluster, what is here and what is not, and the refusals."""

from dataclasses import replace
from pathlib import Path

import pytest

from hack.install.errors import InstallError, NoRoute
from hack.install.facts import Containerd, Machine, Node
from hack.install.route import DISTRIBUTIONS, PROGRAMS, architectures, choose, reachable, sockets

BOOT, ID = "4435-00a7", "3d12-19c7"
K3S_SOCKET, SOCKET = "/run/k3s/containerd/containerd.sock", "/run/containerd/containerd.sock"
HERE = Containerd(BOOT, ID)
# everything that a way may need
ALL = Machine(frozenset(PROGRAMS), {}, ())


def node(name: str = "a", **more: object) -> Node:
    return replace(Node(name, boot_id=BOOT, machine_id=ID), **more)  # type: ignore[arg-type]


def k3d(name: str) -> Node:
    return node(name, kubelet="v1.34.3+k3s1")


def kind(name: str, engine: str = "docker") -> Node:
    return node(name, provider=f"kind://{engine}/lab/{name}")


def minikube(name: str) -> Node:
    return node(name, labels={"minikube.k8s.io/name": "mini"})


K3S = node(kubelet="v1.34.3+k3s1")
RKE2 = node(kubelet="v1.34.3+rke2r1")
K0S = node(kubelet="v1.34.3+k0s")
MICROK8S = node(labels={"microk8s.io/cluster": "true"})


@pytest.mark.parametrize(
    ("nodes", "program"),
    [([kind("lab-0")], "kind"), ([k3d("k3d-lab-server-0")], "k3d"), ([minikube("mini")], "minikube")],
    ids=["kind", "k3d", "minikube"],
)
def test_a_command_that_is_missing_is_named_and_not_replaced(nodes: list[Node], program: str) -> None:
    """Not even by a containerd on this machine, which is docker's: a kind node has our kernel, and so our boot ID."""
    machine = Machine(frozenset(PROGRAMS) - {program}, {SOCKET: HERE, K3S_SOCKET: HERE}, ())
    with pytest.raises(InstallError, match=rf"cluster of {program}, and {program} is not in PATH: .*REGISTRY="):
        choose(nodes, machine)
    assert reachable(nodes, machine) == ()


# by the names of the distributions; an empty one is that of all others
ON_THIS_MACHINE = {
    "k3s": (K3S, K3S_SOCKET, "k3s ctr"),
    "RKE2": (RKE2, K3S_SOCKET, f"/var/lib/rancher/rke2/bin/ctr --address {K3S_SOCKET}"),
    "k0s": (K0S, "/run/k0s/containerd.sock", "k0s ctr"),
    "MicroK8s": (MICROK8S, "/var/snap/microk8s/common/run/containerd.sock", "microk8s ctr"),
    "": (node(), SOCKET, f"ctr --address {SOCKET}"),
}


def test_each_distribution_and_each_command_is_tried_and_on_the_page() -> None:
    assert {each.name for each in DISTRIBUTIONS} == set(ON_THIS_MACHINE)
    page = (Path(__file__).parents[3] / "docs/install.md").read_text()
    section = page.partition("## From a clone\n")[2].partition("\n## ")[0]
    for name in (*ON_THIS_MACHINE, *PROGRAMS):
        assert name in section, f"docs/install.md does not say how images get to nodes of {name}"


@pytest.mark.parametrize(
    ("found", "socket", "ctr"), ON_THIS_MACHINE.values(), ids=[name or "others" for name in ON_THIS_MACHINE]
)
def test_a_node_that_is_this_machine(found: Node, socket: str, ctr: str) -> None:
    assert sockets([found], "") == (socket,)
    route = choose([found], Machine(containerds={socket: HERE}))
    assert [" ".join(command) for command in route.loads] == [f"{ctr} --namespace k8s.io images import {{archive}}"]
    assert route.has_digests
    assert f"`{ctr} images import`" in route.name
    sudo = choose([found], Machine(containerds={socket: HERE}, as_root=("sudo",)))
    assert " ".join(sudo.loads[0]).startswith(f"sudo {ctr} ")
    assert sudo.access[0].state[:2] == ("sudo", "rm")
    with pytest.raises(InstallError, match="only root may bring images to a: run as root, or install sudo"):
        choose([found], Machine(containerds={socket: HERE}, as_root=None))


def test_a_socket_that_is_named_is_the_only_one() -> None:
    machine = Machine(containerds={"/mine.sock": replace(HERE, root="/proc/7/root")})
    assert sockets([K3S], "/mine.sock") == ("/mine.sock",)
    route = choose([K3S], machine, containerd="/mine.sock")
    assert route.loads[0][:3] == ("ctr", "--address", "/mine.sock")
    # its file system is not ours
    assert route.access[0].state[-1] == "/proc/7/root/var/lib/nodedevice"


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(node(boot_id="another"), id="another kernel"),
        pytest.param(node(machine_id="another"), id="a container of the same kernel"),
        pytest.param(node(runtime="cri-o://1.33.0"), id="CRI-O"),
        pytest.param(K3S, id="k3s in a container, whose socket is not here"),
    ],
)
def test_a_node_elsewhere_is_refused_with_the_three_ways(found: Node) -> None:
    with pytest.raises(NoRoute) as refused:
        choose([found], Machine(containerds={SOCKET: HERE}))
    message = str(refused.value)
    assert found.name in message
    for part in ("kind, k3d or minikube", "as root or with sudo", "CONTAINERD=", "REGISTRY=registry.example.com/team"):
        assert part in message
    assert message.endswith("Nothing was changed.")


def test_one_of_several_nodes_is_elsewhere() -> None:
    nodes = [node("here"), *(node(f"away-{number}", boot_id="x") for number in range(5))]
    machine = Machine(containerds={SOCKET: HERE})
    with pytest.raises(
        NoRoute, match=r"^here is this machine, and away-0 .*, away-1 .*, away-2 .* and 2 more cannot be reached"
    ):
        choose(nodes, machine)
    assert [access.nodes for access in reachable(nodes, machine)] == ["here"]


def test_a_socket_of_another_node() -> None:
    machine = Machine(containerds={"/mine.sock": replace(HERE, boot_id="x")})
    with pytest.raises(NoRoute, match=r"the containerd at CONTAINERD=/mine.sock is not that of a "):
        choose([node()], machine, containerd="/mine.sock")


@pytest.mark.parametrize("nodes", [[kind("lab-0")], [K3S], [node(boot_id="x")]], ids=["kind", "k3s", "elsewhere"])
def test_a_registry_that_is_named_comes_first(nodes: list[Node]) -> None:
    """Also where the cluster's own command is not here."""
    route = choose(nodes, Machine(), registry="10.43.0.10:5000/team")
    assert (route.registry, route.loads, route.has_digests) == ("10.43.0.10:5000/team", (), True)


def test_other_systems_count_for_nothing() -> None:
    windows = node("w", os="windows", architecture="s390x", boot_id="x")
    assert choose([windows, kind("lab-0")], ALL).loads[0][0] == "kind"
    assert architectures([windows, node("b", architecture="arm64"), node("c"), node("d")]) == ("amd64", "arm64")
    with pytest.raises(InstallError, match="no Linux node"):
        choose([windows], ALL)
