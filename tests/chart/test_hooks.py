"""What Helm runs at an upgrade, an uninstall and a test, and that nothing of it stays."""

from typing import Any

import pytest

from tests.chart.rendering import WORK, manifests, named, pod_of, render
from tests.cluster.chart import is_hook

pytestmark = pytest.mark.cluster


_OWN_TAINT = {"key": "nodedevice.io/unhealthy-devices", "operator": "Exists"}
# instead of those that the admission plugin DefaultTolerationSeconds adds; they match no taint
_NOT_WHERE_NODES_ARE_DOWN = [
    {"key": f"node.kubernetes.io/{what}", "operator": "Equal", "value": "not-for-hooks", "effect": "NoExecute"}
    for what in ("not-ready", "unreachable")
]


_ANY_POD = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}, "namespaceSelector": {}}
_WHERE_PODS_RUN = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": _ANY_POD}]}


_TERM = {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["system"]}]}
_NODES = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_TERM]}}
_APART = [{"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}]
_CHOSEN = {
    "nodeSelector": {"pool": "system"},
    "tolerations": [{"key": "system", "operator": "Exists"}],
    "affinity": {
        "nodeAffinity": _NODES,
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _APART},
    },
}


@pytest.mark.parametrize(("operator", "affinity"), [({}, {}), (_CHOSEN, {"nodeAffinity": _NODES})])
def test_hooks_run_where_the_operator_may_run(operator: dict[str, Any], affinity: dict[str, Any]) -> None:
    """Not on a node that is down: an empty one is the scheduler's favourite, and a pod that tolerates it is never evicted.

    Without what keeps operators apart: with one on each node there would be no node for a hook.
    """
    values = {"operator": operator}
    own = pod_of(named("Deployment", "nodedevice-operator", values))
    pods = [pod_of(each) for each in render(values) if is_hook(each) and each["kind"] in WORK]
    assert len(pods) == 4
    assert _OWN_TAINT in own["tolerations"]
    for pod in pods:
        assert pod["tolerations"] == [*own["tolerations"], *_NOT_WHERE_NODES_ARE_DOWN]
        assert pod["nodeSelector"] == own["nodeSelector"]
        assert pod["affinity"] == {"podAffinity": _WHERE_PODS_RUN, **affinity}


def test_hooks_can_be_left_out() -> None:
    names = {each["metadata"]["name"] for each in manifests("as little as may be") if is_hook(each)}
    assert names == {"nodedevice-image-pull", "nodedevice-check"}
