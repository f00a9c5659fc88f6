"""What was brought into a cluster that is not ours, found by its marks and taken away again; nothing else there is touched."""

import json
from typing import Final

from nodedevice_operator.core import required_plugins

from tests.cluster.cluster import Cluster
from tests.cluster.lent_marks import LABEL, Mark

# Nodes first, so that nothing is started there any more; namespaces last, with all that is in them.
_KINDS: Final = (
    *("nodes", "validatingadmissionpolicybindings", "validatingadmissionpolicies"),
    *("clusterrolebindings", "clusterroles", "crds", "namespaces"),
)
# The operator keeps these, and writes no mark; a cluster with an operator of somebody else's is not used at all.
_OPERATORS: Final = ("mutatingadmissionpolicybindings", "mutatingadmissionpolicies")


def found(cluster: Cluster) -> dict[Mark, list[str]]:
    """What is there, as kind/name, by who brought it. Raises CommandError."""
    things: dict[Mark, list[str]] = {}
    for item in json.loads(cluster.kubectl("get", ",".join(_KINDS), "-l", LABEL, "-o", "json"))["items"]:
        mark = Mark.parse(item["metadata"]["labels"][LABEL])
        if mark is not None:
            things.setdefault(mark, []).append(f"{item['kind']}/{item['metadata']['name']}")
    return things


def take_away(cluster: Cluster, mark: Mark) -> None:
    """Everything with that mark, objects of our kinds with their definitions. What cannot be deleted does not keep the rest."""
    for node in cluster.kubectl("get", "nodes", "-l", _selector(mark), "-o", "name", check=False).split():
        # also what DaemonSets of the cluster have started there, as if on a real node; no kubelet will ever end it
        on_it = f"--field-selector=spec.nodeName={node.removeprefix('node/')}"
        cluster.kubectl("delete", "pods", "-A", on_it, "--grace-period=0", "--force", check=False)
    for kind in _OPERATORS:
        # an API server without them has none
        cluster.kubectl("delete", kind, required_plugins.NAME, "--ignore-not-found", check=False)
    for kind in _KINDS:
        cluster.kubectl("delete", kind, "-l", _selector(mark), "--wait", "--timeout=60s", check=False)


def commands(mark: Mark) -> list[str]:
    """How a person takes it away; pods on a Node that is gone are deleted by the cluster itself."""
    return [
        f"kubectl delete {','.join(_OPERATORS)} {required_plugins.NAME} --ignore-not-found",
        f"kubectl delete {','.join(_KINDS)} -l {_selector(mark)}",
    ]


def _selector(mark: Mark) -> str:
    return f"{LABEL}={mark}"
