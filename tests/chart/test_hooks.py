"""What Helm runs at an upgrade, an uninstall and a test, and that nothing of it stays."""

from typing import Any

import pytest

from tests.chart.rendering import WORK, manifests, named, pod_of, render
from tests.cluster.chart import is_hook

pytestmark = pytest.mark.cluster


_OWN_TAINT = [{"key": "nodedevice.io/unhealthy-devices", "operator": "Exists"}]
# instead of those that the admission plugin DefaultTolerationSeconds adds; they match no taint
_NOT_WHERE_NODES_ARE_DOWN = [
    {"key": f"node.kubernetes.io/{what}", "operator": "Equal", "value": "not-for-hooks", "effect": "NoExecute"}
    for what in ("not-ready", "unreachable")
]


_ANY_POD = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}, "namespaceSelector": {}}
_WHERE_PODS_RUN = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": _ANY_POD}]}


def hook_pods(values: dict[str, Any]) -> list[dict[str, Any]]:
    found = [pod_of(each) for each in render(values) if is_hook(each) and each["kind"] in WORK]
    assert len(found) == 4
    return found


def test_hooks_run_where_the_operator_may_run() -> None:
    """Not on a node that is down: an empty one is the scheduler's favourite, and a pod that tolerates it is never evicted."""
    operator = pod_of(named("Deployment", "nodedevice-operator"))
    for pod in hook_pods({}):
        assert pod["tolerations"] == [*operator["tolerations"], *_NOT_WHERE_NODES_ARE_DOWN]
        assert pod["nodeSelector"] == operator["nodeSelector"]
        assert pod["affinity"] == {"podAffinity": _WHERE_PODS_RUN}


def test_hooks_have_what_chooses_the_operators_nodes() -> None:
    """Without what keeps operators apart: with one on each node there would be no node for a hook."""
    term = {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["system"]}]}
    node = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    apart = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}
    values = {
        "operator": {
            "nodeSelector": {"pool": "system"},
            "tolerations": [{"key": "system", "operator": "Exists"}],
            "affinity": {
                "nodeAffinity": node,
                "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]},
            },
        }
    }
    for pod in hook_pods(values):
        assert pod["tolerations"] == [{"key": "system", "operator": "Exists"}, *_OWN_TAINT, *_NOT_WHERE_NODES_ARE_DOWN]
        assert pod["nodeSelector"] == {"kubernetes.io/os": "linux", "pool": "system"}
        assert pod["affinity"] == {"nodeAffinity": node, "podAffinity": _WHERE_PODS_RUN}


def test_hooks_can_be_left_out() -> None:
    names = {each["metadata"]["name"] for each in manifests("as little as may be") if is_hook(each)}
    assert names == {"nodedevice-image-pull", "nodedevice-check"}
