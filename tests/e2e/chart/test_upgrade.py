"""`helm upgrade` from the release before: every pod of ours is another one, and nothing else has noticed.

The release before is made here: an older version, and definitions that lack something of today's.
"""

import shutil
from pathlib import Path
from typing import Any

from hack import yaml_text
from tests.cluster.chart import CHART, SYSTEM_NAMESPACE
from tests.cluster.observe import Observer, Seen
from tests.e2e.chart.cluster import AGENT, NODE, OPERATOR, ChartCluster
from tests.e2e.chart.workloads import GPU, VENDOR_DEVICES, VENDOR_RESOURCE, built_in, user, vendor_plugin

GPUS = 2
_OURS = f"system:serviceaccount:{SYSTEM_NAMESPACE}:"


def test_an_upgrade_writes_no_node_and_hurts_no_pod(cluster: ChartCluster, tmp_path: Path) -> None:
    previous = cluster.release.package(VERSION, previous_chart(tmp_path / "previous"))
    cluster.release.install(cluster.values_of_other_images("previous", **built_in(GPUS)), chart=previous)
    cluster.wait_capacity(GPU, GPUS)
    cluster.run(user("holds", {GPU: 1}))
    ours, theirs, devices = cluster.containers(SYSTEM_NAMESPACE), cluster.containers("default"), _devices(cluster)
    answered = len(_node_writes(cluster))
    with Observer.nodes(cluster.control_plane.admin_kubeconfig) as nodes:
        nodes.wait(lambda seen: bool(seen.object.metadata.name == NODE), since=0)
        cluster.release.upgrade(cluster.values(**built_in(GPUS)))
        cluster.wait(
            lambda: cluster.containers(SYSTEM_NAMESPACE).keys().isdisjoint(ours), "every pod of ours is another one"
        )
        cluster.run(user("comes-after", {GPU: 1}))
        shown = [_resources(seen) for seen in nodes.seen()]
    assert [resources for resources in shown if resources != {GPU: (GPUS, GPUS)}] == [], _node_writes(cluster)
    assert _node_writes(cluster)[answered:] == [], cluster.state()
    assert cluster.containers("default").items() >= theirs.items()
    assert _devices(cluster).items() >= devices.items()
    definition = cluster.get("crd", DEFINITION)
    assert definition["metadata"]["annotations"][RELEASE_ANNOTATION] != VERSION
    assert LACKED in [column["name"] for column in definition["spec"]["versions"][0]["additionalPrinterColumns"]]


def test_a_vendors_pods_outlive_the_agent_and_the_operator(cluster: ChartCluster) -> None:
    """This vendor's plugin restarts its server ten seconds after it saw another device manager: its free devices go and come."""
    cluster.release.install(cluster.values_of_other_images("previous"))
    cluster.apply(vendor_plugin())
    cluster.wait_capacity(VENDOR_RESOURCE, len(VENDOR_DEVICES))
    cluster.run(user("holds", {VENDOR_RESOURCE: 1}))
    theirs, plugin = cluster.containers("default"), cluster.containers("kube-system")
    registered = _registered(cluster)
    with Observer.nodes(cluster.control_plane.admin_kubeconfig) as nodes:
        nodes.wait(lambda seen: bool(seen.object.metadata.name == NODE), since=0)
        cluster.release.upgrade(cluster.values())
        cluster.wait(lambda: _registered(cluster) != registered, "the plugin has registered with the other agent")
        cluster.wait_capacity(VENDOR_RESOURCE, len(VENDOR_DEVICES))
        assert min(_capacity(seen, VENDOR_RESOURCE) for seen in nodes.seen()) >= 1, "less than is in use"
    cluster.run(user("comes-after", {VENDOR_RESOURCE: 1}))
    assert cluster.containers("default").items() >= theirs.items()
    assert cluster.containers("kube-system") == plugin


def _capacity(seen: Seen, resource: str) -> int:
    return _resources(seen).get(resource, (0, 0))[0]


def _resources(seen: Seen) -> dict[str, tuple[int, int]]:
    """Capacity and allocatable of each extended resource of a Node."""
    status = seen.object.status
    return {
        name: (int(count), int((status.allocatable or {}).get(name, 0)))
        for name, count in (status.capacity or {}).items()
        if "/" in name
    }


def _devices(cluster: ChartCluster) -> dict[str, Any]:
    """What each pod holds."""
    status = cluster.node_device(GPU)["status"]
    return {held["name"]: (held["podUID"], held["deviceIDs"], held["since"]) for held in status["allocations"]}


def _registered(cluster: ChartCluster) -> str:
    return str(cluster.node_device(VENDOR_RESOURCE)["status"]["endpoint"].get("since"))


def _node_writes(cluster: ChartCluster) -> list[str]:
    """Every write of a Node by one of our accounts so far: when, who and what."""
    return [
        f"{event['requestReceivedTimestamp']} {event['user']['username'].removeprefix(_OURS)} {event['requestURI']}"
        for event in cluster.control_plane.audit_events()
        if event.get("objectRef", {}).get("resource") == "nodes"
        and event["verb"] not in ("get", "list", "watch")
        and event["user"]["username"] in (f"{_OURS}{AGENT}", f"{_OURS}{OPERATOR}")
    ]


VERSION = "0.0.9"
DEFINITION = "nodedevices.nodedevice.io"
RELEASE_ANNOTATION = "nodedevice.io/release"
# a column that `kubectl get` shows: no object loses anything by it, and everybody can see whether it is there
LACKED = "Ready"


def previous_chart(folder: Path) -> Path:
    """A copy of the chart in `folder`, which is made, with those changes. Returns it."""
    shutil.copytree(CHART, folder)
    chart = yaml_text.load((folder / "Chart.yaml").read_text())
    (folder / "Chart.yaml").write_text(yaml_text.dump({**chart, "version": VERSION, "appVersion": VERSION}))
    for file in (folder / "crds").glob("*.yaml"):
        definition = yaml_text.load(file.read_text())
        definition["metadata"]["annotations"][RELEASE_ANNOTATION] = VERSION
        for version in definition["spec"]["versions"]:
            columns = version["additionalPrinterColumns"]
            version["additionalPrinterColumns"] = [column for column in columns if column["name"] != LACKED]
        file.write_text(yaml_text.dump(definition))
    return folder
