"""What `helm install` refuses, with the name of what is wrong; and that what it takes, the programs take too."""

import json
from pathlib import Path
from typing import Any

import pytest
from nodedevice_agent import settings as agent_settings
from nodedevice_operator import settings as operator_settings

from charts import generate_schema
from tests.chart.rendering import agent_pod, manifests, named, refusal
from tests.chart.values import VALUE_SETS
from tests.cluster.chart import SYSTEM_NAMESPACE

pytestmark = pytest.mark.cluster


def plugins(**more: Any) -> dict[str, Any]:
    return {"agents": {"config": {"plugins": {"simulated": [{"resourceName": "example.com/gpu", **more}]}}}}


def agent(config: dict[str, Any]) -> dict[str, Any]:
    return {"agents": {"config": config}}


def operator(config: dict[str, Any]) -> dict[str, Any]:
    return {"operator": {"config": config}}


def monitors(interval: str) -> dict[str, Any]:
    return {"monitoring": {"monitors": {"enabled": True, "interval": interval}}}


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"agent": {}}, "agent: unknown key; did you mean agents?"),
        (agent({"runtme": "nri"}), "agents.config.runtme: unknown key; did you mean runtime?"),
        (agent({"delivery": "docker"}), 'agents.config.delivery: "docker" is not one of auto, kubelet, none, nri'),
        (agent({"stateDir": "state"}), 'agents.config.stateDir: "state" is a relative path'),
        (agent({"nodeName": "a"}), "agents.config.nodeName: the chart sets it"),
        (plugins(counts=1), "plugins.simulated[0].counts: unknown key; did you mean count?"),
        (plugins(resourceName="gpu"), 'plugins.simulated[0].resourceName: "gpu" must be domain/name'),
        ({"agents": {"tolerations": [{"effect": "Never"}]}}, "at '/agents/tolerations/0/effect': value must be one of"),
        ({"agents": {"podLabels": {"app.kubernetes.io/name": "x"}}}, "at '/agents/podLabels/app.kubernetes.io~1name'"),
        ({"agents": {"image": {"digest": "sha256:abc"}}}, "at '/agents/image/digest': 'sha256:abc' does not match"),
        (
            {"agents": {"leaseNamespace": SYSTEM_NAMESPACE}},
            "agents may write every Lease in it; choose another, such as nodedevice-agents",
        ),
        (operator({"leaderElect": False}), "at '/operator/config': additional properties 'leaderElect'"),
        (
            operator({"heldDevicePolicy": {"*": "evict"}}),
            "says evict for *, which needs the operator's right to evict pods: set evictions to true",
        ),
        ({"image": {"registry": "https://a.example.com"}}, "at '/image/registry': 'https://a.example.com' does"),
        (monitors("1s1h"), "at '/monitoring/monitors/interval'"),
        (agent({"stateDir": "/" + "s" * 80}), "agents.config.stateDir: has 81 characters"),
        (
            {"crds": {"keep": False}, "cleanup": {"enabled": False}},
            "crds.keep is false and cleanup.enabled is false too: it is the cleanup that deletes the kinds",
        ),
    ],
)
def test_refuses(values: dict[str, Any], sentence: str) -> None:
    assert sentence in refusal(values)


@pytest.mark.parametrize(
    ("registry", "repository", "image"),
    [
        ("", "nodedevice-agent", "nodedevice-agent:1"),
        ("team", "agent", "team/agent:1"),
        ("Registry.example.com:5000/team/of_mine/", "a.b/agent", "Registry.example.com:5000/team/of_mine/a.b/agent:1"),
    ],
)
def test_registries(registry: str, repository: str, image: str) -> None:
    values = {"image": {"registry": registry, "tag": "1"}, "agents": {"image": {"repository": repository}}}
    assert agent_pod(values)["containers"][0]["image"] == image


@pytest.mark.parametrize(
    ("metrics", "https"),
    [
        ({}, {}),
        ({"authentication": "token"}, {"scheme": "https", "tlsConfig": {"insecureSkipVerify": True}}),
        ({"certificate": "ours"}, {"scheme": "https", "tlsConfig": {"insecureSkipVerify": True}}),
    ],
)
def test_monitors_scrape_as_it_is_served(metrics: dict[str, str], https: dict[str, Any]) -> None:
    authorization = {"credentials": {"name": "prometheus-token", "key": "token"}}
    values = {"metrics": metrics, "monitoring": {"monitors": {"enabled": True, "authorization": authorization}}}
    [of_agents] = named("PodMonitor", "nodedevice-agent", values)["spec"]["podMetricsEndpoints"]
    [of_operator] = named("ServiceMonitor", "nodedevice-operator", values)["spec"]["endpoints"]
    expected = {**https, "authorization": authorization} if https else {}
    for endpoint in (of_agents, of_operator):
        found = {key: endpoint[key] for key in endpoint.keys() & {"scheme", "tlsConfig", "authorization"}}
        assert found == expected


def dra_rights(account: str, values: dict[str, Any]) -> dict[str, list[str]]:
    """What the role of that account has of the API of DRA: verbs by kind."""
    rules = named("ClusterRole", account, values)["rules"]
    of_dra = [rule for rule in rules if rule["apiGroups"] == ["resource.k8s.io"]]
    return {resource: rule["verbs"] for rule in of_dra for resource in rule["resources"]}


@pytest.mark.parametrize(
    ("agents", "is_on", "claims"),
    [
        ({}, True, ["get"]),
        ({"observeClaims": False}, True, None),
        ({"observeDra": False}, False, None),
        ({"observe": False}, False, None),
        ({"observe": False, "observeDra": True, "observeClaims": True}, False, None),
        ({"enabled": False}, True, ["get"]),
    ],
)
def test_dra_is_observed_with_as_few_rights_as_it_needs(
    agents: dict[str, Any], is_on: bool, claims: list[str] | None
) -> None:
    values = {"agents": agents}
    slices = {"resourceslices": ["list", "watch"]} if is_on else {}
    assert dra_rights("nodedevice-agent", values) == slices | ({"resourceclaims": claims} if claims else {})
    assert dra_rights("nodedevice-operator", values) == slices
    assert dra_rights("nodedevice-check", values) == ({"resourceslices": ["list"]} if is_on else {})
    for program in ("operator", *(["agent"] if agents.get("enabled", True) else [])):
        file = named("ConfigMap", f"nodedevice-{program}", values)["data"][f"{program}.yaml"]
        assert json.loads(file)["observeDra"] == is_on


def open_objects(schema: Any, at: str = "") -> list[str]:
    """Places of the schema that describe an object and let it have keys that nobody knows."""
    if isinstance(schema, list):
        return [place for index, each in enumerate(schema) for place in open_objects(each, f"{at}/{index}")]
    if not isinstance(schema, dict):
        return []
    here = [at] if schema.get("type") == "object" and "additionalProperties" not in schema else []
    return here + [place for key, each in schema.items() for place in open_objects(each, f"{at}/{key}")]


def test_no_object_takes_any_key() -> None:
    """But for those that are Kubernetes' own, which the API server checks, and what a parent chart sets for all."""
    schema = generate_schema.strict()
    [other_volumes] = schema["$defs"]["volumes"]["items"]["patternProperties"]
    assert sorted(open_objects(schema)) == [
        "/$defs/affinity/properties/nodeAffinity/properties/requiredDuringSchedulingIgnoredDuringExecution",
        *(
            f"/$defs/env/items/properties/valueFrom/properties/{kind}"
            for kind in ("configMapKeyRef", "fieldRef", "fileKeyRef", "resourceFieldRef", "secretKeyRef")
        ),
        f"/$defs/volumes/items/patternProperties/{other_volumes}",
        "/properties/global",
        "/properties/monitoring/properties/monitors/properties/authorization",
        "/properties/monitoring/properties/monitors/properties/tlsConfig",
        "/properties/networkPolicies/properties/from/items",
    ]


@pytest.mark.parametrize("name", VALUE_SETS)
def test_the_programs_take_the_settings_that_are_rendered(name: str, tmp_path: Path) -> None:
    files = {each["metadata"]["name"]: each["data"] for each in manifests(name) if each["kind"] == "ConfigMap"}
    if not files:
        assert not VALUE_SETS[name]["agents"]["enabled"]
        return
    agent_file, operator_file = tmp_path / "agent.yaml", tmp_path / "operator.yaml"
    agent_file.write_text(files["nodedevice-agent"]["agent.yaml"])
    operator_file.write_text(files["nodedevice-operator"]["operator.yaml"])
    wanted = VALUE_SETS[name].get("agents", {}).get("config", {})
    assert agent_settings.load(agent_file, {"node_name": "node-a"}).delivery == wanted.get("delivery", "auto")
    loaded = operator_settings.load(operator_file, {})
    assert loaded.node_taint == (VALUE_SETS[name].get("nodeTaint") == "on")
    required = VALUE_SETS[name].get("requiredPlugins", {})
    assert loaded.required_plugins == required.get("enabled", True)
    assert loaded.required_plugin_names == tuple(required.get("names", ["*"]))
    assert loaded.mark_waiting_pods == VALUE_SETS[name].get("markWaitingPods", True)
