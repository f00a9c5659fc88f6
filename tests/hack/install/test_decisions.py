"""The other decisions of an install: who builds, which values, whether anything changes, who else is there, what is missing."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from hack.install.builders import Facts, choose
from hack.install.rollout import rollout
from hack.publish.registry import login

Json = dict[str, Any]


@pytest.mark.parametrize(
    ("architectures", "answering", "ways"),
    [
        pytest.param(["amd64"], ("docker", "podman"), ("docker", "debian"), id="the first builder, then packages"),
        pytest.param(["arm64"], ("docker",), ("debian", "docker"), id="a foreign architecture: no emulator first"),
        pytest.param(["amd64", "arm64"], ("docker",), ("debian",), id="two in one archive"),
    ],
)
def test_who_builds(architectures: list[str], answering: tuple[str, ...], ways: tuple[str, ...]) -> None:
    assert choose("", architectures, Facts(answering, True, "amd64")) == ways


IMAGE = "localhost/nodedevice-agent@sha256:1"


def _set(image: str = IMAGE, desired: int = 1) -> Json:
    spec = {"template": {"spec": {"containers": [{"image": image}]}}}
    return {"kind": "DaemonSet", "metadata": {"name": "s"}, "spec": spec, "status": {"desiredNumberScheduled": desired}}


def _deployment(image: str = "op") -> Json:
    metadata = {"name": "d", "labels": {"app.kubernetes.io/component": "operator"}}
    return {**_set(image), "kind": "Deployment", "metadata": metadata}


def _pod(component: str, image: str, node: str = "n", waiting: Json | None = None, **other: object) -> Json:
    conditions = [{"type": "Ready", "status": "False" if waiting else "True"}]
    statuses = [{"state": {"waiting": waiting}}] if waiting else []
    return {
        "metadata": {"labels": {"app.kubernetes.io/component": component}, **other},
        "spec": {"nodeName": node, "containers": [{"image": image}]},
        "status": {"conditions": conditions, "containerStatuses": statuses},
    }


def _device(node: str = "n", status: Json | None = None) -> Json:
    return {"metadata": {"name": f"{node}.x"}, "spec": {"nodeName": node}, "status": status or {"available": 1}}


AGENT, OPERATOR = _pod("agent", IMAGE), _pod("operator", "op")
WORKLOADS = [_set(), _deployment()]


@pytest.mark.parametrize(
    ("pods", "devices", "begun", "complete"),
    [
        pytest.param([AGENT, OPERATOR], [_device()], True, True, id="all of it"),
        pytest.param([AGENT, OPERATOR], [], False, True, id="nothing offers devices"),
        pytest.param([AGENT], [_device()], False, False, id="no operator"),
        pytest.param([_pod("agent", "former"), OPERATOR], [_device()], False, False, id="an agent of the former image"),
    ],
)
def test_what_runs(pods: list[Json], devices: list[Json], begun: bool, complete: bool) -> None:
    state = rollout(WORKLOADS, pods, devices)
    assert (state.is_begun, state.is_complete) == (begun, complete)
    assert complete or state.missing


def test_pods_of_a_former_configuration_are_not_current() -> None:
    """A changed value changes no image."""
    changed = _set()
    changed["spec"]["template"]["metadata"] = {"annotations": {"checksum/config": "2"}}
    former = _pod("agent", IMAGE, annotations={"checksum/config": "1"})
    assert not rollout([changed, _deployment()], [former, OPERATOR], [_device()]).is_begun
    current = _pod("agent", IMAGE, annotations={"checksum/config": "2", "of.others/mark": "x"})
    assert rollout([changed, _deployment()], [current, OPERATOR], [_device()]).is_begun


def test_what_the_release_does_not_have_is_not_waited_for() -> None:
    """Agents or the operator that run outside of the cluster's pods."""
    assert rollout([_deployment()], [OPERATOR], [_device("far")]).is_begun
    assert rollout([_deployment()], [OPERATOR], []).is_complete
    assert rollout([_set()], [AGENT], [_device()]).is_begun
    assert not rollout([], [], [_device()]).is_complete
    assert not rollout([], [], [_device()]).is_begun


@pytest.mark.parametrize(
    ("waiting", "words"),
    [
        (
            {"reason": "ErrImageNeverPull", "message": "not present"},
            "the agent on n lacks its image localhost/.* is not on that node.*`make install` again",
        ),
        (
            {"reason": "ImagePullBackOff", "message": "server gave HTTP response to HTTPS client"},
            "the registry speaks HTTP",
        ),
        ({"reason": "CreateContainerConfigError", "message": "no"}, "cannot start: CreateContainerConfigError"),
        ({"reason": "ContainerCreating"}, ""),
    ],
    ids=lambda value: value.get("reason", "") if isinstance(value, dict) else "",
)
def test_trouble_of_a_pod_is_named_with_what_to_do(waiting: Json, words: str) -> None:
    state = rollout(WORKLOADS, [_pod("agent", IMAGE, waiting=waiting), OPERATOR], [])
    if not words:
        assert state.troubles == ()
        return
    assert len(state.troubles) == 1

    assert re.search(words, state.troubles[0]), state.troubles
    assert state.missing[0] == state.troubles[0]


def test_other_things_that_are_missing() -> None:
    assert "no pod has been made" in rollout(WORKLOADS, [], []).missing[0]
    assert any("agents.nodeSelector" in line for line in rollout([_set(desired=0)], [AGENT], []).missing)
    conditions = [{"type": "PodScheduled", "status": "False", "message": "0/1 nodes"}]
    pending = {**OPERATOR, "spec": {"containers": [{"image": "op"}]}, "status": {"conditions": conditions}}
    assert rollout(WORKLOADS, [pending], []).troubles == ("the operator has no node: 0/1 nodes",)


@pytest.mark.parametrize(
    ("prefix", "names"),
    [
        ("registry.example.com:5000/team", ["registry.example.com:5000"]),
        ("docker.io/team", ["docker.io", "https://index.docker.io/v1/"]),
    ],
)
def test_a_log_in_is_stored_under_the_names_that_clients_read(prefix: str, names: list[str], tmp_path: Path) -> None:
    environment = login(prefix, "user", "password", tmp_path)
    stored = json.loads(Path(environment["HELM_REGISTRY_CONFIG"]).read_text())
    assert stored == {"auths": {name: {"auth": "dXNlcjpwYXNzd29yZA=="} for name in names}}
