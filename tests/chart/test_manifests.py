"""What the chart renders, for value sets as people have them: linted, taken by a real API server, and as little as it needs."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hack import yaml_text
from tests.chart.rendering import WORK, agent_pod, ask_helm, hook_manifests, manifests, named, pod_of, render
from tests.chart.values import DIGEST, HOOK_OF, VALUE_SETS
from tests.cluster.chart import CHART, SYSTEM_NAMESPACE, manifests_of
from tests.cluster.control_plane.control_plane import ControlPlane

pytestmark = pytest.mark.cluster

# Pods that may do what the Pod Security level `restricted` forbids
PRIVILEGED = {"nodedevice-agent", "nodedevice-agent-gpus", "nodedevice-agent-lab"}


@pytest.mark.parametrize("name", VALUE_SETS)
def test_lint(name: str) -> None:
    done = ask_helm(("lint", "--strict", str(CHART)), VALUE_SETS[name])
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def with_accounts(installed: ControlPlane) -> Iterator[ControlPlane]:
    """With the hooks' accounts too, which a pod needs to be taken even on trial."""
    accounts = yaml_text.dump_all([each for hook in HOOK_OF.values() for each in hook_manifests(hook)])
    installed.apply(accounts)
    installed.add_namespace("leases-of-agents")
    yield installed
    installed.remove_namespace("leases-of-agents")
    installed.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=accounts)


@pytest.fixture(scope="module")
def taken() -> set[str]:
    """Manifests that the API server has taken. It judges each by itself, and most are in many sets of values."""
    return set()


@pytest.mark.parametrize("name", VALUE_SETS)
def test_a_real_api_server_takes_every_manifest(name: str, with_accounts: ControlPlane, taken: set[str]) -> None:
    """Strictly: a field that the API does not know is an error, not a warning."""
    rest = {json.dumps(each) for each in manifests(name)} - taken
    if not rest:
        return
    arguments = ["apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "-f", "-"]
    printed = with_accounts.kubectl(*arguments, stdin="\n".join(rest))
    assert len(printed.splitlines()) == len(rest)
    taken |= rest


@pytest.mark.parametrize("name", VALUE_SETS)
def test_every_pod_but_the_agents_is_restricted(name: str) -> None:
    for each in manifests(name):
        if each["kind"] not in WORK:
            continue
        pod = pod_of(each)
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
        assert pod["enableServiceLinks"] is False
        for container in pod["containers"]:
            security = container["securityContext"]
            if security.get("privileged"):
                privileged = {("GPUs by privilege", "nodedevice-agent"), ("pools of nodes", "nodedevice-agent-lab")}
                assert (name, each["metadata"]["name"]) in privileged
                continue
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert security["readOnlyRootFilesystem"] is True
            assert security["allowPrivilegeEscalation"] is False
            assert security["seccompProfile"] == {"type": "RuntimeDefault"}
            is_root = each["metadata"]["name"] in PRIVILEGED
            assert security["runAsNonRoot"] is not is_root
            assert (security["runAsUser"] == 0) is is_root
        if each["metadata"]["name"] not in PRIVILEGED:
            assert not any("hostPath" in volume for volume in pod.get("volumes", ()))


def test_images() -> None:
    values = VALUE_SETS["a registry of one's own"]
    agent = agent_pod(values)
    assert agent["containers"][0]["image"] == f"registry.example.com/team/nodedevice-agent@{DIGEST}"
    assert agent["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}]
    for kind, name in (("Deployment", "operator"), ("Job", "cleanup"), ("Pod", "check")):
        pod = pod_of(named(kind, f"nodedevice-{name}", values))
        assert pod["containers"][0]["image"] == "registry.example.com/team/nodedevice-operator:edge"
        assert pod["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}]
    version = yaml_text.load((CHART / "Chart.yaml").read_text())["appVersion"]
    assert agent_pod()["containers"][0]["image"] == f"nodedevice-agent:{version}"


def test_the_first_part_of_the_test_pulls_what_the_rest_needs() -> None:
    """It ends within a minute, and can do nothing in the cluster."""
    values = VALUE_SETS["a registry of one's own"]
    job = named("Job", "nodedevice-image-pull", values)
    assert job["spec"]["activeDeadlineSeconds"] <= 60
    pulls, checks = pod_of(job), pod_of(named("Pod", "nodedevice-check", values))
    agent, operator = agent_pod(values)["containers"][0], checks["containers"][0]
    assert {each["image"] for each in pulls["containers"]} == {agent["image"], operator["image"]}
    assert "serviceAccountName" not in pulls
    assert pulls["automountServiceAccountToken"] is False
    [container] = pod_of(named("Job", "nodedevice-image-pull", {"agents": {"enabled": False}}))["containers"]
    assert container["name"] == "nodedevice-operator"


@pytest.mark.parametrize(
    ("kind", "name", "values"),
    [
        ("DaemonSet", "nodedevice-agent", {"agents": {"config": {"logLevel": "debug"}}}),
        ("DaemonSet", "nodedevice-agent", {"agents": {"allowedHostPaths": []}}),
        ("Deployment", "nodedevice-operator", {"operator": {"config": {"logLevel": "debug"}}}),
        ("Deployment", "nodedevice-operator", {"nodeTaint": "on"}),
    ],
)
def test_a_change_of_settings_replaces_the_pods(kind: str, name: str, values: dict[str, Any]) -> None:
    assert named(kind, name)["spec"]["template"] != named(kind, name, values)["spec"]["template"]
    [other] = {("Deployment", "nodedevice-operator"), ("DaemonSet", "nodedevice-agent")} - {(kind, name)}
    assert named(*other)["spec"]["template"] == named(*other, values)["spec"]["template"]


@pytest.mark.parametrize(("kind", "component"), [("DaemonSet", "agent"), ("Deployment", "operator")])
def test_what_can_never_be_changed_is_as_it_was(kind: str, component: str) -> None:
    """The API server refuses another selector in an upgrade: these are what every release before this one installed."""
    labels = {"name": "nodedevice", "instance": "nodedevice", "component": component}
    wanted = {f"app.kubernetes.io/{key}": value for key, value in labels.items()}
    # all but the one that leaves workloads out
    for name in VALUE_SETS.keys() - {"processes of the hosts"}:
        workload = named(kind, f"nodedevice-{component}", VALUE_SETS[name])
        assert workload["spec"]["selector"] == {"matchLabels": wanted}


def test_the_next_version_of_the_chart_alone_replaces_no_pod(helm: Callable[..., Any], tmp_path: Path) -> None:
    packaged = helm("package", str(CHART), "--version", "9.9.9", "--destination", str(tmp_path))
    assert packaged.returncode == 0, packaged.stderr
    done = helm("template", "nodedevice", str(tmp_path / "nodedevice-9.9.9.tgz"), "--namespace", SYSTEM_NAMESPACE)
    assert "helm.sh/chart: nodedevice-9.9.9" in done.stdout
    for each in manifests_of(done):
        if each["kind"] in {"DaemonSet", "Deployment"}:
            assert each["spec"]["template"] == named(each["kind"], each["metadata"]["name"])["spec"]["template"]


def test_the_cleanup_has_nothing_in_the_agents_namespace() -> None:
    """It would have to be there for an uninstall, and somebody may have deleted it; or an uninstall before, with nothing kept."""
    agents = named("Role", "nodedevice-agent")["metadata"]["namespace"]
    hook = hook_manifests("nodedevice-cleanup")
    assert {each["metadata"].get("namespace") for each in hook} == {None, SYSTEM_NAMESPACE}
    assert agents not in {None, SYSTEM_NAMESPACE}


@pytest.mark.parametrize("word", ["123", "true", "null"])
def test_a_name_that_yaml_would_convert_stays_a_name(word: str) -> None:
    """Kubernetes has nothing against such names, and refuses what is no string."""

    def rendered(name: str, namespace: str) -> list[str]:
        values = {
            "image": {"pullSecrets": [name]},
            "agents": {"leaseNamespace": name, "runtimeClassName": name, "priorityClassName": name},
            "operator": {"priorityClassName": name},
            "monitoring": {
                "monitors": {"enabled": True},
                "dashboards": {"enabled": True, "namespace": name},
                "kubeStateMetrics": {"enabled": True, "serviceAccount": {"name": name, "namespace": name}},
            },
        }
        done = ask_helm(("template", name, str(CHART), "--namespace", namespace), values)
        # Within a settings file quotes are text, and the checksum is that text's.
        texts = (
            json.dumps(each).replace(f'instance: \\"{name}\\"', f"instance: {name}") for each in manifests_of(done)
        )
        return sorted(re.sub(r'"checksum/[^"]*": "[^"]*"', "", text) for text in texts)

    ordinary = [
        each.replace("some-name", word).replace("some-place", "456") for each in rendered("some-name", "some-place")
    ]
    assert rendered(word, "456") == sorted(ordinary)


@pytest.mark.parametrize(("values", "ports"), [("closed ports", []), ("ports for monitoring", [8080, 9808])])
def test_only_peers_that_are_named_reach_the_ports(values: str, ports: list[int]) -> None:
    found = [each["spec"] for each in manifests(values) if each["kind"] == "NetworkPolicy"]
    assert [each["policyTypes"] for each in found] == [["Ingress"]] * 2
    rules = [rule for each in found for rule in each.get("ingress", [])]
    assert sorted(port["port"] for rule in rules for port in rule["ports"]) == ports
    assert all(rule["from"] == VALUE_SETS[values]["networkPolicies"]["from"] for rule in rules)
    workloads = [one["spec"] for one in manifests(values) if one["kind"] in {"DaemonSet", "Deployment"}]
    assert [each["podSelector"] for each in found] == [each["selector"] for each in workloads]


def test_a_single_operator_has_no_budget() -> None:
    kinds = {each["kind"] for each in render({"operator": {"replicas": 1}})}
    assert "PodDisruptionBudget" not in kinds
