"""The demo in the place of kubelets, on a control plane without KWOK."""

import json
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.cluster import nodes
from hack.cluster.api import Object
from hack.cluster.cluster import a_pod
from hack.cluster.control_plane.control_plane import ControlPlane
from hack.cluster.observe import Observer
from hack.cluster.waiting import wait_until
from hack.demo.node_player import NodePlayer

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[ControlPlane]:
    with (
        tempfile.TemporaryDirectory(prefix="nd-player-") as folder,
        ControlPlane.start(Path(folder) / "c", with_kwok=False) as running,
    ):
        assert "kwok" not in running.pids()
        yield running


@pytest.fixture(scope="module")
def player(cluster: ControlPlane) -> Iterator[NodePlayer]:
    with NodePlayer(cluster, cluster.folder / "player.log") as playing:
        yield playing


@pytest.fixture(scope="module")
def node(cluster: ControlPlane, player: NodePlayer) -> str:
    """Schedulable when add_node returns."""
    cluster.add_node("node-a")
    return "node-a"


def _get(cluster: ControlPlane, *what: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cluster.kubectl("get", *what, "-o", "json"))
    return found


def test_a_pod_lives_as_with_a_kubelet(cluster: ControlPlane, node: str) -> None:
    """Deleted with a grace period, it ends and goes; each state is seen once, in this order."""
    with Observer.pods(cluster.admin_kubeconfig) as pods:
        cluster.apply(yaml.safe_dump(a_pod("train", "default", {})))
        cluster.kubectl("wait", "--for=condition=Ready", "pod/train", "--timeout=60s")
        cluster.kubectl("delete", "pod", "train", "--grace-period=600", "--timeout=60s")
        pods.wait(lambda seen: seen.kind == "DELETED", since=0.0)
        states = [_state(seen.object) for seen in pods.seen() if seen.kind != "DELETED"]
    assert list(dict.fromkeys(states)) == ["Pending", "Pending waiting", "Running running", "Succeeded terminated"]


def _state(pod: Object) -> str:
    statuses = pod.status.containerStatuses or []
    states = [name for each in statuses if each.state for name, value in each.state.to_dict().items() if value]
    return " ".join([pod.status.phase or "", *states])


def test_a_node_of_somebody_else_is_not_played(cluster: ControlPlane, node: str) -> None:
    cluster.apply(yaml.safe_dump({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a-stranger"}}))
    cluster.apply(yaml.safe_dump(a_pod("on-a-stranger", "default", {}, node_name="a-stranger")))
    try:
        # what comes later by the same watches
        cluster.add_node("after-the-stranger")
        cluster.apply(yaml.safe_dump(a_pod("later", "default", {}, node_name="after-the-stranger")))
        cluster.kubectl("wait", "--for=condition=Ready", "pod/later", "--timeout=60s")
        assert _get(cluster, "node", "a-stranger")["status"].get("conditions", []) == []
        assert _get(cluster, "pod", "on-a-stranger")["status"]["phase"] == "Pending"
    finally:
        cluster.kubectl("delete", "pods", "--all", "--grace-period=0", "--force")
        cluster.kubectl("delete", "node", "a-stranger", "after-the-stranger")


def test_a_node_that_comes_back_is_another_one(cluster: ControlPlane, player: NodePlayer) -> None:
    for _ in range(2):
        cluster.add_node("comes-back")
        uid = _get(cluster, "node", "comes-back")["metadata"]["uid"]
        wait_until(partial(_has_lease, cluster, "comes-back", uid), "its Lease is its own")
        cluster.remove_node("comes-back")


def _has_lease(cluster: ControlPlane, name: str, uid: str) -> bool:
    """One that ends with this very Node."""
    leases = _get(cluster, "leases", "-n", "kube-node-lease")["items"]
    metadata = [lease["metadata"] for lease in leases if lease["metadata"]["name"] == name]
    return uid in [owner["uid"] for each in metadata for owner in each.get("ownerReferences", [])]


def test_it_goes_on_after_an_outage(cluster: ControlPlane, node: str, player: NodePlayer) -> None:
    cluster.stop_apiserver()
    wait_until(lambda: bool(player.trouble), "the outage is noticed")
    cluster.start_apiserver()
    cluster.apply(yaml.safe_dump(a_pod("afterwards", "default", {}, node_name=node)))
    cluster.kubectl("wait", "--for=condition=Ready", "pod/afterwards", "--timeout=60s")
    cluster.kubectl("delete", "pod", "afterwards", "--timeout=60s")


def test_a_missing_right_is_named(cluster: ControlPlane, player: NodePlayer, tmp_path: Path) -> None:
    """As where CLUSTER=current is used by somebody who may read only."""

    class OfAReader:
        played_by = "reader"
        admin_kubeconfig = cluster.service_account_kubeconfig("default", "default", tmp_path / "config")

    cluster.kubectl("create", "clusterrole", "reader", "--verb=get,list,watch", "--resource=nodes,pods")
    cluster.kubectl(
        "create", "clusterrolebinding", "reader", "--clusterrole=reader", "--serviceaccount=default:default"
    )
    nodes.create_node(cluster.client, "read-only", cluster.version, OfAReader.played_by)
    with NodePlayer(OfAReader(), tmp_path / "log") as reader:  # type: ignore[arg-type]
        wait_until(lambda: "forbidden" in reader.trouble, "what is forbidden is named")
    cluster.remove_node("read-only")
