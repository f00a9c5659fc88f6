"""Pools of nodes: each node has exactly one agent, that of the first pool that selects it."""

import itertools
import random
from typing import Any

import pytest

from tests.chart.rendering import refusal, render

pytestmark = pytest.mark.cluster

Json = dict[str, Any]
_KEYS, _VALUES = ("pool", "gpu", "zone"), ("a", "b")
_LINUX = {"kubernetes.io/os": "linux"}


def daemon_sets(values: Json) -> dict[str, Json]:
    """Pod specs by name, in order."""
    found = (each for each in render(values) if each["kind"] == "DaemonSet")
    return {each["metadata"]["name"]: each["spec"] for each in found}


def pools(*selectors: Json) -> Json:
    return {"agents": {"pools": [{"name": f"p{i}", "nodeSelector": each} for i, each in enumerate(selectors)]}}


def selects(spec: Json, labels: dict[str, str]) -> bool:
    """As the scheduler decides: all of the node selector, and one of the affinity's terms."""
    pod = spec["template"]["spec"]
    affinity = pod.get("affinity", {}).get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    terms = affinity["nodeSelectorTerms"] if affinity else [{}]
    return all(labels.get(key) == value for key, value in pod["nodeSelector"].items()) and any(
        all(fits(each, labels) for each in term.get("matchExpressions", [])) for term in terms
    )


def fits(expression: Json, labels: dict[str, str]) -> bool:
    if expression["operator"] == "Exists":
        return expression["key"] in labels
    assert expression["operator"] == "NotIn"
    return labels.get(expression["key"]) not in expression["values"]


@pytest.mark.parametrize("seed", range(6))
def test_each_node_has_one_agent_that_of_the_first_pool(seed: int) -> None:
    dice = random.Random(seed)
    selectors = [
        {key: dice.choice(_VALUES) for key in dice.sample(_KEYS, dice.randint(1, 2))} for _ in range(dice.randint(1, 4))
    ]
    made = daemon_sets(pools(*selectors))
    for choice in itertools.product((None, *_VALUES), repeat=len(_KEYS)):
        labels = _LINUX | {key: value for key, value in zip(_KEYS, choice, strict=True) if value is not None}
        first = next((i for i, each in enumerate(selectors) if each.items() <= labels.items()), None)
        wanted = "nodedevice-agent" if first is None else f"nodedevice-agent-p{first}"
        assert [name for name, spec in made.items() if selects(spec, labels)] == [wanted], (selectors, labels)


def test_affinity_of_all_agents_counts_too() -> None:
    term = {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}
    node = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    values = pools({"pool": "a"})
    values["agents"]["affinity"] = {"nodeAffinity": node}
    made = daemon_sets(values)
    for labels, wanted in (
        ({"zone": "1", "pool": "a"}, ["nodedevice-agent-p0"]),
        ({"zone": "1"}, ["nodedevice-agent"]),
        ({"pool": "a"}, []),
        ({}, []),
    ):
        assert [name for name, spec in made.items() if selects(spec, _LINUX | labels)] == wanted


_FARGATE = _LINUX | {"eks.amazonaws.com/compute-type": "fargate"}
_VIRTUAL_KUBELET = _LINUX | {"type": "virtual-kubelet"}
_LIQO = _LINUX | {"liqo.io/type": "virtual-node"}
_BY_ZONE = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": "zone", "operator": "Exists"}]},
                {"matchExpressions": [{"key": "pool", "operator": "Exists"}]},
            ]
        }
    }
}


@pytest.mark.parametrize("pool", [[], [{"zone": "1"}]])
@pytest.mark.parametrize("affinity", [{}, {"podAntiAffinity": {}}, _BY_ZONE])
def test_no_agent_for_a_node_that_runs_no_daemon(affinity: Json, pool: list[Json]) -> None:
    """EKS makes a Node of each Fargate pod, and a virtual kubelet one of a cloud: a DaemonSet's pod stays Pending there."""
    values = pools(*pool)
    values["agents"]["affinity"] = affinity
    made = daemon_sets(values)
    for labels in (_FARGATE, _VIRTUAL_KUBELET, _LIQO):
        assert [name for name, spec in made.items() if selects(spec, labels | {"zone": "1", "pool": "a"})] == []
    for labels in (_LINUX, _LINUX | {"eks.amazonaws.com/compute-type": "auto", "type": "gpu"}):
        assert sum(selects(spec, labels | {"zone": "1", "pool": "a"}) for spec in made.values()) == 1


def test_a_pool_differs_in_what_it_says() -> None:
    pool = {"name": "gpu", "nodeSelector": {"gpu": "a"}, "runtimeClassName": "nvidia", "privileged": True}
    more = {"tolerations": [], "resources": {"limits": {"memory": "1Gi"}}}
    made = daemon_sets({"agents": {"pools": [{**pool, **more}]}})
    ours, rest = (made[name]["template"]["spec"] for name in ("nodedevice-agent-gpu", "nodedevice-agent"))
    assert ours["runtimeClassName"] == "nvidia"
    assert ours["containers"][0]["securityContext"]["privileged"] is True
    assert ours["containers"][0]["resources"] == {"limits": {"memory": "1Gi"}}
    assert "tolerations" not in ours
    assert "runtimeClassName" not in rest
    assert rest["containers"][0]["securityContext"]["privileged"] is False
    assert rest["tolerations"] == [{"operator": "Exists"}]


def test_no_pod_is_selected_by_two_pools() -> None:
    made = daemon_sets(pools({"pool": "a"}, {"pool": "b"}))
    for name, spec in made.items():
        labels = spec["template"]["metadata"]["labels"].items()
        of = [other for other, its in made.items() if its["selector"]["matchLabels"].items() <= labels]
        # the selector of the rest is as it always was
        assert of == list(dict.fromkeys([name, "nodedevice-agent"]))


@pytest.mark.parametrize(
    ("pool", "sentence"),
    [
        ([{"name": "a"}], "missing property 'nodeSelector'"),
        ([{"name": "a", "nodeSelector": {"a": "b"}, "image": {}}], "additional properties 'image' not allowed"),
        ([{"name": "a", "nodeSelector": {"a": "b"}}] * 2, "agents.pools: two pools are called a"),
        (
            [{"name": f"p{i}", "nodeSelector": {"a": str(i), "b": str(i), "c": str(i)}} for i in range(4)],
            "takes 81 terms of node affinity; 64 are allowed: select pools by fewer labels",
        ),
        (
            [
                {
                    "name": "a",
                    "nodeSelector": {"a": "b"},
                    "resources": {"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}},
                }
            ],
            "agents.pools (a)",
        ),
    ],
)
def test_what_cannot_be_is_refused(pool: list[Json], sentence: str) -> None:
    assert sentence in refusal({"agents": {"pools": pool}})
