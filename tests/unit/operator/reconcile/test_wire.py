"""The bytes that the operator sends of NodeDevices and PodDevices: the same as in the golden files."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final, cast

import msgspec
import pytest
from nodedevice_api import names
from nodedevice_api.names import Condition
from nodedevice_operator.kube.client import Client
from nodedevice_operator.objects.nodedevice import DeviceRecord, StoredCondition, node_device_record
from nodedevice_operator.objects.nodedevice_schema import NodeDeviceSchema
from nodedevice_operator.reconcile.condition_reconciler import ConditionsApi
from nodedevice_operator.reconcile.cordon_restorer import CordonsApi
from nodedevice_operator.reconcile.poddevice_reconciler import PodDevicesApi
from nodedevice_operator.reconcile.poddevices import DesiredPodDevice, desired_pod_devices

from tests.fakes.operator.operator_model import NIC, node_device
from tests.unit import golden
from tests.unit.operator.objects.bodies import node_device_body, of_json
from tests.unit.operator.objects.records import held
from tests.unit.operator.reconcile.test_cordons import cordons, schema

FOLDER: Final = Path(__file__).parent / "wire"
NOW: Final = "2026-01-05T00:00:00Z"
BODY: Final = node_device_body()
STORED: Final = {
    Condition.ADVERTISED: StoredCondition("True", "Advertised", "node-a shows this resource", NOW, 3),
    Condition.CONFLICT: StoredCondition("False", "NoConflict", "", NOW, 3),
    Condition.AGENT_READY: StoredCondition("Unknown", "LeaseMissing", '"☃"\n', NOW, 3),
    Condition.READY: StoredCondition("True", "Ready", "", "", 1),
}


class Sent:
    """Answers each request with one object, and keeps the last body as the client encodes it."""

    def __init__(self) -> None:
        self.body = b""

    async def request(self, method: str, what: str, path: str, **more: Any) -> bytes:
        self.body = msgspec.json.encode(more["body"])
        return msgspec.json.encode(BODY)


def pod_device() -> DesiredPodDevice:
    known = {"gpu-0": DeviceRecord("Healthy", "", False, (0, 1)), "gpu-1": DeviceRecord("Unhealthy", "Xid", False, ())}
    allocations = (held("gpu-1", "gpu-0"), held("gpu-0", "gpu-☃", container="init"))
    gpus = node_device(devices=known, allocations=allocations)
    (made,) = desired_pod_devices("node-a", [gpus, node_device(NIC, allocations=(held("nic-0"),))])
    return made


def allocated(container: str = "main", **of: Any) -> dict[str, Any]:
    """A row of the allocations of a NodeDevice."""
    return {"namespace": "default", "name": "pod-a", "podUID": "uid-a", "container": container, **of}


def only(body: dict[str, Any]) -> DesiredPodDevice:
    """The PodDevice that is made of such a NodeDevice."""
    (made,) = desired_pod_devices("node-a", [node_device_record(of_json(body, NodeDeviceSchema))])
    return made


def with_parts() -> DesiredPodDevice:
    gpu = {"id": "gpu", "health": "Healthy", "parts": {"total": 80, "healthy": 79, "allocated": 3, "available": 76}}
    known = {"parent": "gpu", "parts": 3, "numbers": "0-2", "sep": "::"}
    parts = [known, {"parent": "unknown", "parts": 1, "numbers": "7"}]
    return only(node_device_body(devices=[gpu], allocations=[allocated(parts=parts)]))


def of_claims() -> DesiredPodDevice:
    """A container with two claims on one pool, which share a device; another container has one of them, too."""
    taint = {"key": "example.com/hot", "value": "yes", "effect": "NoExecute", "since": NOW}
    by_name = {"id": "gpu-0", "extendedResource": "example.com/gpu"}
    halves = [{"id": "gpu-1", "shareID": half, "adminAccess": True} for half in ("b", "a")]

    def row(container: str, claim: str, *ids: str, devices: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
        of = {"name": claim, "uid": f"uid-{claim}", "devices": devices}
        return allocated(container, deviceIDs=ids, claim=of)

    body = node_device_body(
        agent={"delivery": "nri", "servedBy": names.SERVED_BY_DRA},
        driver="gpu.example.com",
        pool="node-a",
        devices=[
            {"id": "gpu-0", "health": "Healthy", "numaNodes": [1]},
            {"id": "gpu-1", "health": "Unhealthy", "taints": [taint, {"key": "k", "effect": "NoSchedule"}]},
        ],
        allocations=[
            row("main", "big", "gpu-0", "gpu-1", devices=[by_name]),
            row("main", "small", "gpu-1", devices=halves),
            row("side", "small", "gpu-1", devices=halves),
        ],
    )
    body["spec"]["resourceName"] = "gpu.example.com/devices"
    return only(body)


CASES: Final[dict[str, Callable[[Client], Awaitable[Any]]]] = {
    "conditions": lambda sent: ConditionsApi(sent).apply_conditions(node_device(uid="nd-1"), STORED),
    "no-conditions": lambda sent: ConditionsApi(sent).apply_conditions(node_device(uid="nd-1"), {}),
    "cordons": lambda sent: CordonsApi(sent).apply_cordons(node_device(), schema(remembered=["a"]), cordons(*"abc")),
    "pod-device": lambda sent: PodDevicesApi(sent).apply_pod_device(pod_device(), None),
    "pod-device-of-a-uid": lambda sent: PodDevicesApi(sent).apply_pod_device(pod_device(), "pd-1"),
    "pod-device-of-claims": lambda sent: PodDevicesApi(sent).apply_pod_device(of_claims(), "pd-1"),
    "pod-device-with-parts": lambda sent: PodDevicesApi(sent).apply_pod_device(with_parts(), None),
}


@pytest.mark.parametrize("case", CASES)
async def test_of_an_apply(case: str) -> None:
    sent = Sent()
    await CASES[case](cast(Client, sent))
    golden.check(FOLDER, case, sent.body)


def test_each_file_has_its_case() -> None:
    assert golden.names(FOLDER) == CASES.keys()
