"""Finds objects that we created in a user's cluster by their label, and deletes them; changes nothing else."""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

from nodedevice_operator.requiredplugins import policy as required_plugins

from tests.cluster.cluster import Cluster
from tests.cluster.local.owner_label import LABEL, Mark
from tests.cluster.waiting import wait_until

# Nodes first, so that no pod starts there any more; namespaces last, with all their objects.
_KINDS: Final = (
    *("nodes", "validatingadmissionpolicybindings", "validatingadmissionpolicies"),
    # the chart's objects in kube-system
    "rolebindings",
    *("clusterrolebindings", "clusterroles", "crds", "namespaces"),
)
# The operator keeps these, and writes no mark; a cluster that already has an operator is not used at all.
_OPERATORS: Final = ("mutatingadmissionpolicybindings", "mutatingadmissionpolicies")
# The node controller checks every 5 s for deleted Nodes, and reports each.
_LAST_EVENT: Final = "RemovingNode"
_LAST_EVENT_SECONDS: Final = 8.0


def found(cluster: Cluster) -> dict[Mark, list[str]]:
    """All leftovers, as kind/name, by owner. Raises CommandError."""
    things: dict[Mark, list[str]] = {}
    for item in json.loads(cluster.kubectl("get", ",".join(_KINDS), "-A", "-l", LABEL, "-o", "json"))["items"]:
        mark = Mark.parse(item["metadata"]["labels"][LABEL])
        if mark is not None:
            things.setdefault(mark, []).append(f"{item['kind']}/{item['metadata']['name']}")
    return things


def take_away(cluster: Cluster, mark: Mark) -> None:
    """Delete everything with that mark, and objects of our kinds with their definitions. Continues after a failed
    deletion.
    """
    path = '{range .items[*]}{.metadata.name} {.metadata.uid}{"\\n"}{end}'
    listed = cluster.kubectl("get", "nodes", "-l", _selector(mark), "-o", f"jsonpath={path}", check=False)
    nodes = dict(line.split() for line in listed.splitlines())
    first, *rest = _KINDS
    for name in nodes:
        # so that no new pod replaces a deleted one, even if the Node cannot be deleted
        cluster.kubectl("cordon", name, check=False)
    _delete(cluster, first, mark)
    _delete_pods(cluster, nodes)
    for kind in _OPERATORS:
        # an older API server does not have them
        cluster.kubectl("delete", kind, required_plugins.NAME, "--ignore-not-found", check=False)
    for kind in rest:
        _delete(cluster, kind, mark)
    _delete_events(cluster, nodes)
    # pods that the scheduler bound while the Nodes were deleted
    _delete_pods(cluster, nodes)


def commands(mark: Mark) -> list[str]:
    """Commands that delete the leftovers; the cluster itself deletes pods of a deleted Node, and Events after an hour."""
    return [
        f"kubectl delete {','.join(_OPERATORS)} {required_plugins.NAME} --ignore-not-found",
        f"kubectl delete {','.join(_KINDS)} -A -l {_selector(mark)}",
    ]


def _delete(cluster: Cluster, kind: str, mark: Mark) -> None:
    cluster.kubectl("delete", kind, "-A", "-l", _selector(mark), "--wait", "--timeout=60s", check=False)


def _delete_pods(cluster: Cluster, nodes: Iterable[str]) -> None:
    """Includes pods of the cluster's DaemonSets on these Nodes: no kubelet will ever end them."""
    for name in nodes:
        on_it = f"--field-selector=spec.nodeName={name}"
        cluster.kubectl("delete", "pods", "-A", on_it, "--grace-period=0", "--force", "--timeout=60s", check=False)


def _delete_events(cluster: Cluster, nodes: Mapping[str, str]) -> None:
    """Delete Events about these Nodes (uid by name) and their NodeDevices; the last ones appear after their deletion."""
    # a node controller may check less often: then an Event stays for an hour
    with suppress(TimeoutError):
        wait_until(partial(_is_all_reported, cluster, nodes), "the node controller reports it", _LAST_EVENT_SECONDS)
    by_namespace: dict[str, list[str]] = {}
    for event in _events(cluster, nodes):
        by_namespace.setdefault(event["metadata"]["namespace"], []).append(event["metadata"]["name"])
    for namespace, names in by_namespace.items():
        cluster.kubectl("delete", "events", "-n", namespace, "--ignore-not-found", *names, check=False)


def _is_all_reported(cluster: Cluster, nodes: Mapping[str, str]) -> bool:
    reported = {event["involvedObject"]["name"] for event in _events(cluster, nodes) if event["reason"] == _LAST_EVENT}
    return reported >= set(nodes)


def _events(cluster: Cluster, nodes: Mapping[str, str]) -> list[dict[str, Any]]:
    """Events about these Nodes and their NodeDevices; none if the cluster does not respond."""
    events: list[dict[str, Any]] = []
    for kind in ("Node", "NodeDevice"):
        about = f"--field-selector=involvedObject.kind={kind}"
        listed = cluster.kubectl("get", "events", "-A", about, "-o", "json", check=False)
        events += json.loads(listed)["items"] if listed else []
    return [event for event in events if _is_about(event["involvedObject"], nodes)]


def _is_about(thing: Mapping[str, Any], nodes: Mapping[str, str]) -> bool:
    """A user's Node of the same name has another uid. All NodeDevices in a borrowed cluster are ours."""
    name = thing["name"]
    if thing["kind"] == "NodeDevice":
        return any(name.startswith(f"{node}.") for node in nodes)
    return name in nodes and thing.get("uid") == nodes[name]


def _selector(mark: Mark) -> str:
    return f"{LABEL}={mark}"
