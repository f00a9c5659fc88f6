"""Decoding of pods: the devices that each container requests, and whether the pod has finished."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from nodedevice_agent.devicemanager.pods import Container, ContainerKind, ContainerSettings
from nodedevice_agent.devicemanager.static_pods import CONFIG_MIRROR
from nodedevice_agent.kube.client import KubeClient
from nodedevice_agent.kube.objects import NodeDeviceObject
from nodedevice_agent.kube.pod_objects import PodObject, from_api
from nodedevice_agent.kube.pods import recover_checkpoint
from nodedevice_api.assigned_parts import MAX_CHARACTERS
from nodedevice_api.names import ASSIGNED_PARTS_ANNOTATION

GPU = "example.com/gpu"
# what a quantity of the API can be at most
MOST = 2**63 - 1


def pod(spec: Any, **more: Any) -> PodObject:
    body = {"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": spec, **more}
    return msgspec.json.decode(msgspec.json.encode(body), type=PodObject)


def container(name: str, limits: Any = None, **more: Any) -> dict[str, Any]:
    return {"name": name, "image": "i", "resources": {} if limits is None else {"limits": limits}, **more}


def test_of_a_pod_without_metadata_nothing_is_made_up() -> None:
    found = from_api(pod({"containers": [container("main", {GPU: "1"})]}, metadata={"name": "p"}))
    assert (found.uid, found.namespace, found.name, found.config_hash, found.assigned_parts) == ("", "", "p", "", "")
    mirror = {"name": "p", "annotations": {CONFIG_MIRROR: "x"}}
    assert from_api(pod({"containers": []}, metadata=mirror)).config_hash == ""


def test_containers_come_in_the_order_in_which_they_start() -> None:
    spec = {
        "initContainers": [
            container("prepare", {GPU: "2"}),
            container("beside", {GPU: "1"}, restartPolicy="Always"),
            container("odd", {GPU: "1"}, restartPolicy="Never"),
        ],
        "containers": [container("main", {GPU: "1"}), container("plain")],
        "ephemeralContainers": [container("debug")],
    }
    seen = from_api(pod(spec))
    assert (seen.uid, seen.namespace, seen.name) == ("u", "n", "p")
    assert seen.containers == (
        Container("prepare", ContainerKind.INIT, {GPU: 2}),
        Container("beside", ContainerKind.SIDECAR, {GPU: 1}),
        Container("odd", ContainerKind.INIT, {GPU: 1}),
        Container("main", ContainerKind.APP, {GPU: 1}),
        Container("plain", ContainerKind.APP, {}),
    )


@pytest.mark.parametrize(
    ("quantity", "count"),
    [
        pytest.param("1", 1, id="plain"),
        pytest.param(3, 3, id="a number"),
        pytest.param("2k", 2000, id="thousands"),
        pytest.param("1Ki", 1024, id="binary"),
        pytest.param("1e3", 1000, id="exponent"),
        pytest.param("1M", 10**6, id="millions"),
        pytest.param("0", None, id="none"),
        pytest.param("many", None, id="a word"),
        pytest.param("NaN", None, id="no number"),
        pytest.param("Infinity", None, id="endless is no quantity"),
        pytest.param("1e999999999", MOST, id="beyond any number"),
        pytest.param("-1", None, id="negative"),
    ],
)
def test_quantities(quantity: str | int, count: int | None) -> None:
    (seen,) = from_api(pod({"containers": [container("main", {GPU: quantity})]})).containers
    assert seen.limits == ({} if count is None else {GPU: count})


@pytest.mark.parametrize(
    "name", ["cpu", "memory", "hugepages-2Mi", "kubernetes.io/x", "a.kubernetes.io/x", "requests.example.com/gpu"]
)
def test_other_resources_are_ignored(name: str) -> None:
    (seen,) = from_api(pod({"containers": [container("main", {name: "1", GPU: "1"})]})).containers
    assert seen.limits == {GPU: 1}


@pytest.mark.parametrize(
    ("phase", "has_ended"),
    [("Pending", False), ("Running", False), ("Unknown", False), ("Succeeded", True), ("Failed", True), (None, False)],
)
def test_over(phase: str | None, has_ended: bool) -> None:
    assert from_api(pod({"containers": []}, status={"phase": phase})).has_ended == has_ended


def test_a_pod_with_a_deletion_time_is_terminating() -> None:
    body = {"metadata": {"name": "p", "deletionTimestamp": "2026-01-02T03:04:05Z"}, "spec": {"containers": []}}
    seen = from_api(msgspec.json.decode(msgspec.json.encode(body), type=PodObject))
    assert (seen.is_terminating, seen.has_ended) == (True, False)


@pytest.mark.kubelet("behaviour 52", "scenario 38", "scenario 39")
def test_a_name_that_a_pod_has_through_dra_is_passed_over() -> None:
    """Row 52: only for the container and the name that a claim serves."""
    mapping = {"containerName": "a", "resourceName": "v.com/x", "requestName": "container-0-request-0"}
    spec = {"containers": [container("a", {"v.com/x": "1", "v.com/y": "1"}), container("b", {"v.com/x": "1"})]}
    status = {"extendedResourceClaimStatus": {"resourceClaimName": "c", "requestMappings": [mapping]}}
    seen = from_api(pod(spec, status=status)).containers
    assert [dict(c.limits) for c in seen] == [{"v.com/y": 1}, {"v.com/x": 1}]


def health(resource_name: str, **devices: str) -> dict[str, Any]:
    found = [{"resourceID": device_id, "health": is_so, "message": "x"} for device_id, is_so in devices.items()]
    return {"name": resource_name, "resources": found}


@pytest.mark.kubelet("behaviour 68")
def test_devices_that_the_kubelet_reports_unhealthy_are_known() -> None:
    statuses = [
        {"name": "a", "allocatedResourcesStatus": [health(GPU, g0="Healthy", g1="Unhealthy", g2="Unknown")]},
        {"name": "b", "allocatedResourcesStatus": [health("claim:c", n0="Unhealthy"), {"name": GPU}]},
        {"name": "c"},
    ]
    spec = {"containers": [container("a", {GPU: "3"}), container("b"), container("c")]}
    seen = from_api(pod(spec, status={"containerStatuses": statuses}))
    assert seen.unhealthy == {(GPU, "g1")}
    # nothing that a device manager decides by
    assert seen == from_api(pod(spec))
    assert not from_api(pod({"containers": [container("a")]}, status={"containerStatuses": statuses})).unhealthy


HASH = "0123456789abcdef0123456789abcdef"
CONFIG_HASH = "kubernetes.io/config.hash"
MIRROR = "kubernetes.io/config.mirror"


@pytest.mark.parametrize(
    ("annotations", "config_hash"),
    [
        pytest.param({}, "", id="an ordinary pod"),
        pytest.param({CONFIG_HASH: HASH, MIRROR: HASH}, HASH, id="a mirror pod"),
        pytest.param({CONFIG_HASH: HASH}, "", id="no mirror pod"),
        pytest.param({CONFIG_HASH: "5f0c5b1e-0000-4000-8000-000000000000", MIRROR: "x"}, "", id="another uid"),
    ],
)
def test_a_mirror_pod_claims_the_uid_of_a_static_pod(annotations: dict[str, str], config_hash: str) -> None:
    metadata = {"name": "p", "namespace": "n", "uid": "u", "annotations": annotations}
    seen = from_api(pod({"containers": [container("main")]}, metadata=metadata))
    assert (seen.uid, seen.api_uid, seen.config_hash) == ("u", "", config_hash)


@pytest.mark.parametrize(
    ("annotations", "seen"),
    [
        pytest.param({"nodedevice.io/sm-percent": "30", "a.nodedevice.io/x": "1"}, {"nodedevice.io/sm-percent": "30"}),
        pytest.param({"nodedevice.io/x": "é" * 1000}, {"nodedevice.io/x": "é" * 256}, id="a long one"),
        pytest.param(
            {f"nodedevice.io/{number:02}": "" for number in range(100)},
            {f"nodedevice.io/{number:02}": "" for number in range(16)},
            id="many",
        ),
    ],
)
def test_annotations_for_device_plugins_are_bounded(annotations: dict[str, str], seen: dict[str, str]) -> None:
    metadata = {"name": "p", "namespace": "n", "uid": "u", "annotations": annotations}
    assert from_api(pod({"containers": [container("main", {GPU: "1"})]}, metadata=metadata)).annotations == seen
    assert from_api(pod({"containers": [container("main")]}, metadata=metadata)).annotations == {}


def test_assigned_parts_are_not_for_plugins_and_bounded() -> None:
    metadata = {"name": "p", "namespace": "n", "uid": "u", "annotations": {ASSIGNED_PARTS_ANNOTATION: "x" * 20_000}}
    seen = from_api(pod({"containers": [container("main", {GPU: "1"})]}, metadata=metadata))
    assert (seen.annotations, seen.assigned_parts) == ({}, "x" * (MAX_CHARACTERS + 1))
    assert from_api(pod({"containers": [container("main")]}, metadata=metadata)).assigned_parts == ""


OWN = {
    "env": [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
    "volumeMounts": [{"name": "v", "mountPath": "/data/"}, {"name": "v", "mountPath": "//x/./y"}],
    "securityContext": {"privileged": True, "runAsUser": 7},
}


def test_settings_of_a_container() -> None:
    (seen,) = from_api(pod({"containers": [container("main", {GPU: "1"}, **OWN)]})).containers
    assert seen.settings == ContainerSettings(
        frozenset({"A", "B"}), frozenset({"/data", "/x/y"}), is_privileged=True, run_as_user=7
    )


@pytest.mark.parametrize(
    ("own", "pods", "expected"),
    [
        (None, None, (None, None)),
        ({}, {"runAsUser": 1, "runAsGroup": 2}, (1, 2)),
        ({"runAsUser": 3}, {"runAsUser": 1, "runAsGroup": 2}, (3, 2)),
        ({"runAsUser": 0, "runAsGroup": 0}, {"runAsUser": 1, "runAsGroup": 2}, (0, 0)),
        ({"runAsGroup": 4}, None, (None, 4)),
        (None, {"runAsUser": None, "fsGroup": 5}, (None, None)),
    ],
)
def test_whom_a_container_runs_as(own: Any, pods: Any, expected: tuple[int | None, int | None]) -> None:
    (seen,) = from_api(
        pod({"containers": [container("main", {GPU: "1"}, securityContext=own)], "securityContext": pods})
    ).containers
    assert (seen.settings.run_as_user, seen.settings.run_as_group) == expected


def test_variables_that_the_command_refers_to() -> None:
    """Those that the pod sets are expanded by the kubelet. Bounded."""
    many = [f"$(V{number})" for number in range(200)]
    command = {"command": ["/bin/app", "$(A)", "$$(ESCAPED)"], "args": ["--x=$(GPU)$(NIC)", f"$({'x' * 300})"]}
    (seen,) = from_api(pod({"containers": [container("main", {GPU: "1"}, **OWN, **command)]})).containers
    assert seen.settings.references == {"GPU", "NIC"}
    (seen,) = from_api(pod({"containers": [container("main", {GPU: "1"}, command=many)]})).containers
    assert len(seen.settings.references) == 64


@pytest.mark.parametrize("kind", ["configMapKeyRef", "secretKeyRef", "fileKeyRef"])
@pytest.mark.parametrize(("optional", "is_own"), [(True, False), (False, True), (None, True)])
def test_a_variable_that_may_be_missing_is_not_counted_on(kind: str, optional: bool | None, is_own: bool) -> None:
    """The agent cannot know whether its source exists, or the image's value applies."""
    ref = {"name": "n", "key": "k"} | ({} if optional is None else {"optional": optional})
    env = [{"name": "A", "valueFrom": {kind: ref}}, {"name": "B", "value": ""}]
    (seen,) = from_api(pod({"containers": [container("main", {GPU: "1"}, env=env)]})).containers
    assert seen.settings.envs == ({"A", "B"} if is_own else {"B"})


class LostCheckpoint(KubeClient):
    """The NodeDevices of the node."""

    def __init__(self, *bodies: dict[str, Any]) -> None:
        self.objects = [msgspec.convert(body, NodeDeviceObject) for body in bodies]

    async def node_devices_of(self, node_name: str, keep: Callable[[NodeDeviceObject], Any] | None = None) -> list[Any]:
        return [keep(found) if keep is not None else found for found in self.objects]


@pytest.mark.parametrize(
    ("agent", "delivery"),
    [
        pytest.param({"delivery": "nri", "runtime": "nri"}, "nri", id="of this release"),
        pytest.param({"runtime": "kubelet"}, "kubelet", id="of the release before"),
        pytest.param({"delivery": "x"}, "", id="not known"),
        pytest.param(None, "", id="no agent"),
    ],
)
async def test_the_delivery_is_recovered_with_the_allocations(agent: dict[str, str] | None, delivery: str) -> None:
    status = {"allocations": [{"podUID": "p", "container": "main", "deviceIDs": ["d0"]}], "agent": agent}
    cluster = LostCheckpoint({"metadata": {"name": "a"}, "spec": {"resourceName": GPU}, "status": status})
    assert [a.delivery for a in (await recover_checkpoint(cluster, "n")).allocations] == [delivery]


async def test_a_device_of_two_pods_is_recovered_for_the_first(caplog: pytest.LogCaptureFixture) -> None:
    def held(uid: str, *device_ids: str) -> dict[str, Any]:
        return {"podUID": uid, "podName": uid, "namespace": "n", "container": "main", "deviceIDs": [*device_ids]}

    status = {"allocations": [held("p", "d0"), held("q", "d0", "d1"), held("r", "d2")]}
    found = await recover_checkpoint(
        LostCheckpoint({"metadata": {"name": "a"}, "spec": {"resourceName": GPU}, "status": status}), "n"
    )
    assert {a.pod_uid: a.device_ids for a in found.allocations} == {"p": ("d0",), "r": ("d2",)}
    [logged] = [record.__dict__ for record in caplog.records]
    assert (logged["pod_uid"], logged["held_by"], logged["device_ids"]) == ("q", ["p"], ["d0", "d1"])


@pytest.mark.parametrize(
    ("more", "is_held_back"),
    [
        ({}, False),
        ({"allocationsOmitted": 0}, False),
        ({"allocationsOmitted": 2}, True),
        ({"ids": 7}, True),
        ({"allocationsOmitted": 7, "ids": 7}, True),
    ],
)
async def test_a_resource_is_held_back_of_which_a_status_omits_allocations(
    more: dict[str, int], is_held_back: bool
) -> None:
    entry = {"podUID": "u", "container": "c", "deviceIDs": ["d0"], "deviceIDsOmitted": more.pop("ids", 0)}
    body = {"metadata": {"name": "a"}, "spec": {"resourceName": GPU}, "status": {"allocations": [entry], **more}}
    found = await recover_checkpoint(LostCheckpoint(body, {"metadata": {"name": "b"}, "status": body["status"]}), "n")
    assert found.possible_holders == ({GPU: ("",)} if is_held_back else {})
    assert [a.device_ids for a in found.allocations] == [("d0",)]


async def test_parts_are_recovered_by_their_numbers() -> None:
    parts = [{"parent": "a", "parts": 3, "numbers": "0-1,5"}, {"parent": "b", "parts": 1, "numbers": "7"}]
    entry = {"podUID": "u", "container": "c", "parts": parts}
    status = {"devices": [{"id": "a", "numaNodes": [1]}], "allocations": [entry]}
    body = {"metadata": {"name": "a"}, "spec": {"resourceName": GPU}, "status": status}
    (found,) = (await recover_checkpoint(LostCheckpoint(body), "n")).allocations
    assert found.ids_by_numa == {-1: ("b-7",), 1: ("a-0", "a-1", "a-5")}


async def test_parts_that_cannot_be_read_hold_the_resource_back() -> None:
    entry = {"podUID": "u", "container": "c", "parts": [{"parent": "a", "parts": 1, "numbers": "0-999999"}]}
    body = {"metadata": {"name": "a"}, "spec": {"resourceName": GPU}, "status": {"allocations": [entry]}}
    found = await recover_checkpoint(LostCheckpoint(body), "n")
    assert (found.allocations, found.possible_holders) == ((), {GPU: ("",)})
