"""Decoding of pods: the devices that each container requests, and whether the pod has finished."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from nodedevice_agent.devicemanager.pods import Container, ContainerKind, ContainerSettings, Pod
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.devicemanager.static_pods import CONFIG_MIRROR
from nodedevice_agent.kube.client import KubeClient
from nodedevice_agent.kube.objects import NodeDeviceObject
from nodedevice_agent.kube.pod_objects import PodObject, from_api
from nodedevice_agent.kube.pods import recover_checkpoint
from nodedevice_api.assigned_parts import MAX_CHARACTERS
from nodedevice_api.names import ASSIGNED_PARTS_ANNOTATION

GPU = "example.com/gpu"


def pod(spec: Any, **more: Any) -> PodObject:
    body = {"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": spec, **more}
    return msgspec.json.decode(msgspec.json.encode(body), type=PodObject)


def container(name: str, limits: Any = None, **more: Any) -> dict[str, Any]:
    return {"name": name, "image": "i", "resources": {} if limits is None else {"limits": limits}, **more}


def of_one_container(limits: dict[str, str | int] | None = None, **own: Any) -> Container:
    """As it is decoded; own: its fields. It requests a GPU unless other limits are given."""
    (seen,) = from_api(pod({"containers": [container("main", limits or {GPU: "1"}, **own)]})).containers
    return seen


def test_of_a_pod_without_metadata_nothing_is_made_up() -> None:
    found = from_api(pod({"containers": [container("main", {GPU: "1"})]}, metadata={"name": "p"}))
    assert (found.uid, found.namespace, found.name, found.config_hash, found.assigned_parts) == ("", "", "p", "", "")


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
        pytest.param("1Ki", 1024, id="a quantity"),
        pytest.param(3, 3, id="a number"),
        pytest.param("0", None, id="none"),
        pytest.param("many", None, id="a word"),
        pytest.param("-1", None, id="negative"),
    ],
)
def test_quantities(quantity: str | int, count: int | None) -> None:
    assert of_one_container({GPU: quantity}).limits == ({} if count is None else {GPU: count})


@pytest.mark.parametrize(
    "name", ["cpu", "memory", "hugepages-2Mi", "kubernetes.io/x", "a.kubernetes.io/x", "requests.example.com/gpu"]
)
def test_other_resources_are_ignored(name: str) -> None:
    assert of_one_container({name: "1", GPU: "1"}).limits == {GPU: 1}


@pytest.mark.parametrize(
    ("phase", "has_ended"),
    [("Pending", False), ("Running", False), ("Unknown", False), ("Succeeded", True), ("Failed", True), (None, False)],
)
def test_over(phase: str | None, has_ended: bool) -> None:
    """The containers of one that has ended are not kept."""
    found = from_api(pod({"containers": [container("main", {GPU: "1"})]}, status={"phase": phase}))
    assert (found.has_ended, len(found.containers)) == (has_ended, not has_ended)


def test_a_pod_with_a_deletion_time_is_terminating() -> None:
    seen = from_api(pod({"containers": []}, metadata={"name": "p", "deletionTimestamp": "2026-01-02T03:04:05Z"}))
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


def annotated(annotations: dict[str, str], **limits: str) -> Pod:
    """With one container of these limits."""
    metadata = {"name": "p", "namespace": "n", "uid": "u", "annotations": annotations}
    return from_api(pod({"containers": [container("main", limits)]}, metadata=metadata))


@pytest.mark.parametrize(
    ("annotations", "config_hash"),
    [
        pytest.param({}, "", id="an ordinary pod"),
        pytest.param({CONFIG_HASH: HASH, CONFIG_MIRROR: HASH}, HASH, id="a mirror pod"),
        pytest.param({CONFIG_HASH: HASH}, "", id="no mirror pod"),
        pytest.param({CONFIG_MIRROR: "x"}, "", id="of no source"),
        pytest.param({CONFIG_HASH: "5f0c5b1e-0000-4000-8000-000000000000", CONFIG_MIRROR: "x"}, "", id="another uid"),
    ],
)
def test_a_mirror_pod_claims_the_uid_of_a_static_pod(annotations: dict[str, str], config_hash: str) -> None:
    seen = annotated(annotations)
    assert (seen.uid, seen.api_uid, seen.config_hash) == ("u", "", config_hash)


NUMBERED = [f"nodedevice.io/{number:02}" for number in range(100)]
SM_PERCENT = {"nodedevice.io/sm-percent": "30"}


@pytest.mark.parametrize(
    ("annotations", "for_plugins", "assigned"),
    [
        pytest.param(SM_PERCENT | {"a.nodedevice.io/x": "1"}, SM_PERCENT, "", id="ours alone"),
        pytest.param({"nodedevice.io/x": "é" * 1000}, {"nodedevice.io/x": "é" * 256}, "", id="a long one"),
        pytest.param(dict.fromkeys(NUMBERED, ""), dict.fromkeys(NUMBERED[:16], ""), "", id="many"),
        pytest.param({ASSIGNED_PARTS_ANNOTATION: "x" * 20_000}, {}, "x" * (MAX_CHARACTERS + 1), id="assigned parts"),
    ],
)
def test_annotations_are_bounded_and_known_of_pods_that_request_devices(
    annotations: dict[str, str], for_plugins: dict[str, str], assigned: str
) -> None:
    seen, without = annotated(annotations, **{GPU: "1"}), annotated(annotations)
    assert (seen.annotations, seen.assigned_parts) == (for_plugins, assigned)
    assert (without.annotations, without.assigned_parts) == ({}, "")


OWN: dict[str, Any] = {
    "env": [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
    "volumeMounts": [{"name": "v", "mountPath": "/data/"}, {"name": "v", "mountPath": "//x/./y"}],
    "securityContext": {"privileged": True, "runAsUser": 7},
}


def test_settings_of_a_container() -> None:
    assert of_one_container(**OWN).settings == ContainerSettings(
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
    args = ["--x=$(GPU)$(NIC)", f"$({'x' * 300})"]
    found = of_one_container(**OWN, command=["/bin/app", "$(A)", "$$(ESCAPED)"], args=args)
    assert found.settings.references == {"GPU", "NIC"}
    assert len(of_one_container(command=many).settings.references) == 64


@pytest.mark.parametrize("kind", ["configMapKeyRef", "secretKeyRef", "fileKeyRef"])
@pytest.mark.parametrize(("optional", "is_own"), [(True, False), (False, True), (None, True)])
def test_a_variable_that_may_be_missing_is_not_counted_on(kind: str, optional: bool | None, is_own: bool) -> None:
    """The agent cannot know whether its source exists, or the image's value applies."""
    ref = {"name": "n", "key": "k"} | ({} if optional is None else {"optional": optional})
    env = [{"name": "A", "valueFrom": {kind: ref}}, {"name": "B", "value": ""}]
    assert of_one_container(env=env).settings.envs == ({"A", "B"} if is_own else {"B"})


class LostCheckpoint(KubeClient):
    """The NodeDevices of the node."""

    def __init__(self, *bodies: dict[str, Any]) -> None:
        self.objects = [msgspec.convert(body, NodeDeviceObject) for body in bodies]

    async def node_devices_of(self, node_name: str, keep: Callable[[NodeDeviceObject], Any] | None = None) -> list[Any]:
        return [keep(found) if keep is not None else found for found in self.objects]


def an_object(name: str, **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "x", "uid": f"uid of {name}"}, "spec": {"resourceName": name}, "status": status}


async def recovered(**status: Any) -> Checkpoint:
    """Of one object with this status."""
    return await recover_checkpoint(LostCheckpoint(an_object(GPU, **status)), "n")


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
    held = {"podUID": "p", "container": "main", "deviceIDs": ["d0"]}
    assert [a.delivery for a in (await recovered(allocations=[held], agent=agent)).allocations] == [delivery]


async def test_a_device_of_two_pods_is_recovered_for_the_first(caplog: pytest.LogCaptureFixture) -> None:
    def held(uid: str, *device_ids: str) -> dict[str, Any]:
        return {"podUID": uid, "podName": uid, "namespace": "n", "container": "main", "deviceIDs": [*device_ids]}

    found = await recovered(allocations=[held("p", "d0"), held("q", "d0", "d1"), held("r", "d2")])
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
        ({"parts": [{"parent": "a", "parts": 1, "numbers": "0-999999"}]}, True),
    ],
)
async def test_a_resource_is_held_back_of_which_a_status_omits_allocations(
    more: dict[str, Any], is_held_back: bool
) -> None:
    counts = {"deviceIDsOmitted": more.pop("ids", 0), "parts": more.pop("parts", [])}
    entry = {"podUID": "u", "container": "c", "deviceIDs": ["d0"], **counts}
    body = an_object(GPU, allocations=[entry], **more)
    found = await recover_checkpoint(LostCheckpoint(body, {"metadata": {"name": "b"}, "status": body["status"]}), "n")
    assert found.possible_holders == ({GPU: ("",)} if is_held_back else {})
    assert [a.device_ids for a in found.allocations] == [("d0",)]
