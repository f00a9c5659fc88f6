"""`check`: each part that an installation needs, and what is shown of one that is missing, silent or not to be seen."""

import json
from typing import Any, Final

import pytest
from kubectl_nodedevice import checks, kubeconfig
from nodedevice_kube.settings import Settings

from tests.unit.cli.api_server import DAEMON_SETS, DEPLOYMENTS, EVENTS, LEASES, PODS, FakeApiServer, status
from tests.unit.cli.conftest import Run
from tests.unit.cli.objects import NODE_DEVICES, condition, event, labels_of, node_device, pod


def _check(run: Run, *more: str) -> tuple[int, dict[str, tuple[str, str]]]:
    ran = run("check", "--wait-seconds", "0", "-o", "json", *more)
    items = json.loads(ran.out)["items"]
    return ran.status, {f"{each['what']} {each['name']}".strip(): (each["state"], each["message"]) for each in items}


def test_nobody_leads_and_its_pod_says_why(run: Run, server: FakeApiServer) -> None:
    del server.objects[LEASES][0]
    starting = pod("nodedevice-operator-x", "node-a", "Pending", **labels_of("operator"))
    starting["metadata"]["namespace"] = "nodedevice-system"
    starting["status"]["containerStatuses"] = [{"name": "main", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]
    server.objects[PODS].append(starting)
    status, found = _check(run)
    assert (status, "none leads" in found["operator"][1]) == (1, True), found
    assert "docs/install.md" in found["pod nodedevice-operator-x"][1]


def test_fewer_agents_than_wanted(run: Run, server: FakeApiServer) -> None:
    server.objects[DAEMON_SETS] = [
        {"metadata": {"name": name, "namespace": namespace}, "status": {"desiredNumberScheduled": number}}
        for name, namespace, number in (
            ("nodedevice-agent", "elsewhere", 9),
            ("nodedevice-agent", "nodedevice-system", 5),
            ("pool", "nodedevice-system", 2),
        )
    ]
    wanted = "2 renew their Leases, of {} that the DaemonSet wants; check the agents' pods and logs"
    assert _check(run)[1]["agents"] == ("Bad", wanted.format(5))
    names = (word for name in ("nodedevice-agent", "pool", "none") for word in ("--daemon-set", name))
    assert _check(run, *names)[1]["agents"] == ("Bad", wanted.format(7))


@pytest.mark.parametrize("more", [("-n", "elsewhere"), ("--leases-namespace", "elsewhere")])
def test_an_installation_elsewhere(run: Run, server: FakeApiServer, more: tuple[str, str]) -> None:
    """Operator and agents are where the flags say."""
    namespace = "nodedevice-system" if more[0] == "-n" else "nodedevice-agents"
    assert _check(run, *more)[0] == 1
    for each in server.objects[LEASES]:
        if each["metadata"]["namespace"] == namespace:
            each["metadata"]["namespace"] = "elsewhere"
    assert _check(run, *more)[0] == 0


@pytest.mark.parametrize("kind", ["customresourcedefinitions", "leases", "nodedevices"])
def test_what_may_not_be_seen_is_no_success(run: Run, server: FakeApiServer, kind: str) -> None:
    server.fault = lambda request: status(403, "no") if request.path.partition("?")[0].count(f"/{kind}") else None
    ended, found = _check(run)
    assert (ended, "NotSeen" in {state for state, _ in found.values()}) == (1, True), found


_POD_SECURITY: Final = 'pods "nodedevice-agent-" is forbidden: violates PodSecurity "baseline:latest": hostPath volumes'
_QUOTA: Final = 'pods "nodedevice-operator-5d9c-x" is forbidden: exceeded quota: few, requested: pods=1'
_SYSTEM: Final = "nodedevice-system"


def _daemon_set(current: int) -> dict[str, Any]:
    numbers = {"desiredNumberScheduled": 5, "currentNumberScheduled": current}
    return {"metadata": {"name": "nodedevice-agent", "namespace": _SYSTEM, "uid": "u1"}, "status": numbers}


def _failed_create(message: str, at: str, uid: str = "u1") -> dict[str, Any]:
    return event("FailedCreate", message, "DaemonSet", "nodedevice-agent", uid, at, _SYSTEM)


def test_the_cluster_refuses_the_agents_pods(run: Run, server: FakeApiServer) -> None:
    """There is no pod whose log could say so: the last Event of the DaemonSet does, and none of another one."""
    server.objects[DAEMON_SETS] = [_daemon_set(0)]
    server.objects[EVENTS] = [
        _failed_create("Error creating: of another DaemonSet", "2026-11-28T10:00:29Z", "u0"),
        _failed_create(f"Error creating: {_POD_SECURITY}", "2026-11-28T10:00:10Z"),
        _failed_create("Error creating: of before", "2026-11-28T09:00:00Z"),
    ]
    status, found = _check(run)
    few = "2 renew their Leases, of 5 that the DaemonSet wants; the cluster refuses their pods"
    assert (status, found["agents"]) == (1, ("Bad", few))
    verdict, message = found["DaemonSet nodedevice-agent"]
    assert (verdict, message.partition("(")[0]) == ("Bad", "FailedCreate ")
    assert _POD_SECURITY in message
    remedy = "set the label pod-security.kubernetes.io/enforce=privileged on namespace nodedevice-system"
    assert message.endswith(f"; {remedy}")


def test_a_refusal_that_is_over_is_not_shown(run: Run, server: FakeApiServer) -> None:
    server.objects[DAEMON_SETS] = [_daemon_set(5)]
    server.objects[EVENTS] = [_failed_create(_POD_SECURITY, "2026-11-28T10:00:10Z")]
    over = {"type": "ReplicaFailure", "status": "False", "reason": "FailedCreate", "message": _QUOTA}
    server.objects[DEPLOYMENTS] = [_deployment("nodedevice-operator", over)]
    found = _check(run)[1]
    assert not any("FailedCreate" in message for _, message in found.values())
    assert found["agents"][1].endswith("; check the agents' pods and logs")


def test_events_that_may_not_be_seen_change_nothing(run: Run, server: FakeApiServer) -> None:
    server.objects[DAEMON_SETS] = [_daemon_set(0)]
    server.fault = lambda request: status(403, "no") if request.path.endswith(("/events", "/deployments")) else None
    assert _check(run)[1]["agents"][1].endswith("; check the agents' pods and logs")


def _deployment(name: str, *conditions: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": _SYSTEM, "labels": labels_of(name.removeprefix("nodedevice-"))}
    return {"metadata": metadata, "status": {"conditions": list(conditions)}}


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("nodedevice-operator", "the cluster refuses their pods"),
        ("nodedevice-scheduler", "check the operators' pods and logs, and its namespace (-n)"),
    ],
)
def test_the_cluster_refuses_pods_of_a_deployment(name: str, why: str, run: Run, server: FakeApiServer) -> None:
    del server.objects[LEASES][0]
    failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": _QUOTA}
    server.objects[DEPLOYMENTS] = [_deployment(name, failure)]
    found = _check(run)[1]
    remedy = "raise the ResourceQuota few in namespace nodedevice-system"
    assert found[f"Deployment {name}"] == ("Bad", f"FailedCreate: {_QUOTA}; {remedy}")
    assert found["operator"][1] == f"none leads; {why}"


@pytest.mark.parametrize(("account", "leads"), [("", True), ("nodedevice-check", False)])
def test_in_a_pod_of_the_release_its_namespace_counts(
    run: Run, server: FakeApiServer, monkeypatch: pytest.MonkeyPatch, account: str, leads: bool
) -> None:
    """Of a person it is that of their pods, and says nothing."""
    load = kubeconfig.load

    def elsewhere(*given: Any) -> Settings:
        return load(*given)._replace(namespace="elsewhere", account=account)

    monkeypatch.setattr(kubeconfig, "load", elsewhere)
    found = _check(run)[1]
    assert any(name.startswith("operator ") and state == "Good" for name, (state, _) in found.items()) == leads


def test_many_are_counted(run: Run, server: FakeApiServer) -> None:
    bad = [condition("AgentReady"), condition("Ready", "False", "ForeignOwner", "another owns it")]
    found = [node_device(f"n{each}") for each in range(60)]
    found[57]["status"]["conditions"] = bad
    server.objects[NODE_DEVICES] = found
    assert [line for line in _check(run)[1].items() if line[0].startswith("NodeDevice")] == [
        ("NodeDevices", ("Bad", "59 of 60 are Ready")),
        ("NodeDevice n57.example.com.gpu", ("Bad", "2 of 2 available; ForeignOwner: another owns it")),
    ]
    assert sum(each.path.startswith(f"{NODE_DEVICES}/") for each in server.requests) == checks.MOST_LISTED
