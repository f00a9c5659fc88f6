"""The other decisions of an install: who builds, which values, whether anything changes, who else is there, what is missing."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from hack.install import owners, texts, values
from hack.install.arguments import Arguments, parse
from hack.install.builders import Facts, choose
from hack.install.commands import failure, last_words
from hack.install.errors import InstallError
from hack.install.owners import Owner
from hack.install.rollout import rollout
from hack.install.values import Named
from hack.publish.registry import login

OURS = Owner("nodedevice-system", "nodedevice")
Json = dict[str, Any]


@pytest.mark.parametrize(
    ("wanted", "architectures", "answering", "has_apt", "ways"),
    [
        pytest.param(
            "", ["amd64"], ["docker", "podman"], True, ("docker", "debian"), id="the first builder, then packages"
        ),
        pytest.param("", ["amd64"], [], True, ("debian",), id="no builder"),
        pytest.param("", ["amd64"], ["buildah"], False, ("buildah",), id="no Debian"),
        pytest.param(
            "", ["arm64"], ["docker"], True, ("debian", "docker"), id="a foreign architecture: no emulator first"
        ),
        pytest.param("", ["arm64"], ["docker"], False, ("docker",), id="a foreign one by an emulator"),
        pytest.param("", ["amd64", "arm64"], ["docker"], True, ("debian",), id="two in one archive"),
        pytest.param("podman", ["amd64"], ["docker", "podman"], True, ("podman",), id="named"),
        pytest.param("debian", ["amd64"], ["docker"], True, ("debian",), id="none is wanted"),
    ],
)
def test_who_builds(
    wanted: str, architectures: list[str], answering: list[str], has_apt: bool, ways: tuple[str, ...]
) -> None:
    assert choose(wanted, architectures, Facts(tuple(answering), has_apt, "amd64")) == ways


@pytest.mark.parametrize(
    ("wanted", "architectures", "answering", "message"),
    [
        pytest.param("", ["amd64"], [], "nothing here builds images for amd64: install docker, podman", id="nothing"),
        pytest.param("", ["amd64", "arm64"], ["docker"], "nothing here builds images for amd64 and arm64", id="two"),
        pytest.param("kaniko", ["amd64"], [], "BUILDER=kaniko is unknown: name one of docker, podman", id="unknown"),
        pytest.param("podman", ["amd64"], ["docker"], "BUILDER=podman does not respond: start it", id="not here"),
        pytest.param("docker", ["amd64", "arm64"], ["docker"], "nothing here builds images", id="named, for two"),
    ],
)
def test_nobody_builds(wanted: str, architectures: list[str], answering: list[str], message: str) -> None:
    with pytest.raises(InstallError, match=message):
        choose(wanted, architectures, Facts(tuple(answering), False, "amd64"))


def _named(digest: str = "") -> dict[str, Named]:
    return {program: Named(program, "dev-1", digest) for program in values.PARTS}


def test_values_of_images() -> None:
    """Nobody pulls what no registry has; what a registry has is named by digest."""
    loaded = values.of_images(_named())
    assert loaded["image"] == {"registry": "localhost", "tag": "", "pullPolicy": "Never"}
    assert loaded["agents"]["image"] == {"repository": "nodedevice-agent", "tag": "dev-1", "digest": ""}
    pushed = values.of_images(_named("sha256:1"), "10.43.0.10:5000")
    assert pushed["image"] == {"registry": "10.43.0.10:5000", "tag": "", "pullPolicy": "IfNotPresent"}
    assert pushed["operator"]["image"]["digest"] == "sha256:1"
    # every key is set each time: a later install by another way leaves nothing of the former one
    assert loaded.keys() == pushed.keys()


def _release(**other: object) -> Json:
    hooks = [{"manifest": "a: 1\n", "last_run": {"phase": "Succeeded"}}, {"manifest": "b: 1"}]
    return {"info": {"status": "deployed"}, "manifest": "x: 1\n", "config": {"a": 1}, "hooks": hooks, **other}


@pytest.mark.parametrize(
    ("planned", "unchanged"),
    [
        (_release(hooks=[{"manifest": "b: 1\n"}, {"manifest": "a: 1"}], info={"status": "pending-upgrade"}), True),
        (_release(manifest="x: 2"), False),
        (_release(config={"a": 2}), False),
        (_release(hooks=[]), False),
        ({}, False),
    ],
    ids=["equal", "manifest", "values", "hooks", "nothing"],
)
def test_whether_an_upgrade_changes_anything(planned: Json, unchanged: bool) -> None:
    assert values.is_unchanged(_release(), planned) is unchanged
    assert not values.is_unchanged(_release(info={"status": "failed"}), planned)
    assert not values.is_unchanged({}, planned)


# -- who else is there ----------------------------------------------------------------------------------------------------


def _listed(
    namespace: str, name: str = "nodedevice", status: str = "deployed", chart: str = "nodedevice-0.1.0"
) -> Json:
    return {"namespace": namespace, "name": name, "status": status, "chart": chart}


def _workload(namespace: str, release: str = "", of: str = "") -> Json:
    marks = {"meta.helm.sh/release-name": release, "meta.helm.sh/release-namespace": of} if release else {}
    return {"metadata": {"name": "nodedevice-agent", "namespace": namespace, "annotations": marks or None}}


def test_who_is_there() -> None:
    listed = [
        _listed("a"),
        _listed("b", "mine"),
        _listed("c", chart="nodedevice-exporter-1"),
        _listed("d", chart="nginx-1"),
    ]
    assert owners.of_releases(listed) == {Owner("a", "nodedevice"), Owner("b", "mine")}
    items = [_workload("x"), _workload("a", "nodedevice", "a")]
    assert owners.of_workloads(items) == {Owner("x", ""), Owner("a", "nodedevice")}


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (
            Owner("team-b", "theirs"),
            r"the release theirs in the namespace team-b.*make install NAMESPACE=team-b RELEASE=theirs",
        ),
        (Owner("nodedevice-system", "other"), r"the release other in the namespace nodedevice-system"),
        (
            Owner("nodedevice-system", ""),
            r"as a manifest in the namespace nodedevice-system.*commands that the manifest names",
        ),
    ],
    ids=["another namespace", "another name", "a manifest"],
)
def test_somebody_else_is_named_before_anything_is_done(found: Owner, message: str) -> None:
    with pytest.raises(InstallError, match=message) as refused:
        owners.check_alone([OURS, found], OURS)
    assert str(refused.value).endswith("Nothing was changed")
    owners.check_alone([OURS], OURS)
    owners.check_alone([], OURS)


@pytest.mark.parametrize(
    ("status", "remedy"),
    [
        ("pending-install", "make uninstall"),
        ("pending-upgrade", "helm rollback nodedevice --namespace a"),
        ("pending-rollback", "helm rollback nodedevice --namespace a"),
        ("uninstalling", "make uninstall"),
        ("deployed", ""),
        ("failed", ""),
        ("superseded", ""),
    ],
)
def test_a_release_that_was_cut_off(status: str, remedy: str) -> None:
    listed = [_listed("a", status=status), _listed("b", status="pending-install", chart="nginx-1")]
    if not remedy:
        owners.check_idle(listed)
        return
    with pytest.raises(InstallError, match=rf"is {status}: .*`{remedy}`"):
        owners.check_idle(listed)


@pytest.mark.parametrize(
    ("release", "newer"), [("0.2.0", True), ("0.1.0", False), ("0.1.0-rc.1", False), ("", False), ("nightly", False)]
)
def test_kinds_of_a_newer_release_are_not_replaced(release: str, newer: bool) -> None:
    kinds: list[Json] = [
        {"metadata": {"name": "a", "annotations": {"nodedevice.io/release": release}}},
        {"metadata": {"name": "b"}},
    ]
    if not newer:
        owners.check_kinds(kinds, "0.1.0")
        return
    with pytest.raises(InstallError, match=r"the kind a is of release 0\.2\.0, newer than this tree, 0\.1\.0: "):
        owners.check_kinds(kinds, "0.1.0")


# -- what is missing ------------------------------------------------------------------------------------------------------

IMAGE = "localhost/nodedevice-agent@sha256:1"


def _set(image: str = IMAGE, desired: int = 1) -> Json:
    spec = {"template": {"spec": {"containers": [{"image": image}]}}}
    return {"kind": "DaemonSet", "metadata": {"name": "s"}, "spec": spec, "status": {"desiredNumberScheduled": desired}}


def _deployment(image: str = "op") -> Json:
    return {
        **_set(image),
        "kind": "Deployment",
        "metadata": {"name": "d", "labels": {"app.kubernetes.io/component": "operator"}},
    }


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
        pytest.param([OPERATOR], [_device()], False, False, id="no agent"),
        pytest.param([AGENT, OPERATOR], [_device("other")], False, True, id="of another node's former agent"),
        pytest.param([AGENT, OPERATOR], [{**_device(), "status": None}], False, True, id="a cordon alone"),
        pytest.param([_pod("agent", "former"), OPERATOR], [_device()], False, False, id="an agent of the former image"),
        pytest.param(
            [_pod("agent", IMAGE, deletionTimestamp="now"), OPERATOR],
            [_device()],
            False,
            False,
            id="an agent that ends",
        ),
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
        ({"reason": "ErrImagePull", "message": "401 Unauthorized"}, "image.pullSecrets"),
        ({"reason": "ErrImagePull", "message": "no such host"}, "compare REGISTRY"),
        (
            {"reason": "CreateContainerConfigError", "message": "no such key"},
            "cannot start: CreateContainerConfigError",
        ),
        ({"reason": "CrashLoopBackOff", "message": "back-off 10s"}, "ends again and again: back-off 10s"),
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
    pending = {
        **OPERATOR,
        "status": {"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/1 nodes"}]},
    }
    pending["spec"] = {"containers": [{"image": "op"}]}
    assert rollout(WORKLOADS, [pending], []).troubles == ("the operator has no node: 0/1 nodes",)


# -- words ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stderr", "remedy"),
    [
        ("The connection to the server 10.0.0.1:6443 was refused", "check that the cluster runs"),
        ("Unable to connect to the server: dial tcp: lookup nowhere: no such host", "check that the cluster runs"),
        (
            "net/http: request canceled while waiting for connection (Client.Timeout exceeded)",
            "check that the cluster runs",
        ),
        ("error: You must be logged in to the server (Unauthorized)", "log in again"),
        ("tls: failed to verify certificate: x509: certificate signed by unknown authority", "another cluster's"),
        ('nodes is forbidden: User "x" cannot list resource', "administrator"),
        ("getting credentials: exec: executable aws not found", "install it, log in"),
        ("Error: UPGRADE FAILED: another operation (install/upgrade/rollback) is in progress", "wait for it"),
        ("Error: values don't meet the specifications of the schema(s)", "correct VALUES"),
        ("", "repeat the command"),
    ],
)
def test_what_programs_complain_about_has_a_remedy(stderr: str, remedy: str) -> None:
    message = str(failure("asking", stderr))
    assert remedy in message
    assert "\n" not in message


def test_the_end_of_a_complaint_is_one_line() -> None:
    assert last_words("W0101 warned\nError: a\n\n  b.\n") == "Error: a b"
    assert last_words("") == "it printed nothing"
    assert len(last_words("x" * 5000)) <= 600


def test_next_steps_name_a_free_resource() -> None:
    full = {"metadata": {"name": "a"}, "spec": {"resourceName": "full"}, "status": {"available": 0}}
    free = {"metadata": {"name": "b"}, "spec": {"resourceName": "example.com/fuse"}, "status": {"available": 4}}
    text = texts.next_steps("NAME\n", [full, free], " NAMESPACE=x")
    assert "resources: {limits: {example.com/fuse: 1}}" in text
    assert "make uninstall NAMESPACE=x " in text
    assert "No device is free" in texts.next_steps("", [full, {"metadata": {"name": "c"}}], "")


def test_cordons_are_named_with_their_reasons() -> None:
    cordoned = {"metadata": {"name": "a"}, "spec": {"cordonedDevices": [{"id": "0", "reason": "fan"}, {"id": "1"}]}}
    assert texts.cordons([cordoned, {"metadata": {"name": "b"}}]) == ["NodeDevice a, cordoned: 0 (fan), 1 (no reason)"]


def test_arguments_that_are_empty_are_not_given() -> None:
    """As the Makefile passes them."""
    words = ["install", "--registry", "", "--values", "", "--namespace", "", "--release", "", "--timeout-seconds", ""]
    assert parse(words) == ("install", Arguments())
    command, given = parse(
        ["uninstall", "--namespace", "a", "--values", "v.yaml", "--registry", "r/", "--all", "--yes"]
    )
    assert (command, given.of_make, given.registry) == ("uninstall", " NAMESPACE=a", "r")
    assert (given.values, given.is_all, given.is_sure, given.is_plan) == (Path("v.yaml"), True, True, False)
    with pytest.raises(SystemExit):
        parse(["install", "--timeout-seconds", "soon"])


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
