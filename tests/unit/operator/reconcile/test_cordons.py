"""Which cordons the operator sets again, and how often."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from nodedevice_kube.api_errors import ApiError, Conflict, NotFound, Unreachable
from nodedevice_operator.informers.store import Cache
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord, node_device_record
from nodedevice_operator.objects.nodedevice_schema import NodeDeviceSchema
from nodedevice_operator.reconcile.cordon_restorer import (
    Cordon,
    CordonReconciler,
    CordonsApi,
    CordonsMemory,
    CordonsSchema,
    to_restore,
)
from nodedevice_operator.reconcile.turn import REQUESTS_AT_ONCE, Budget, Turn

from tests.fakes.operator.collaborators import RecordingRecorder
from tests.fakes.operator.operator_model import GPU, NIC, node_device

NODE = "node-a"


def cordons(*device_ids: str) -> list[Cordon]:
    """The notes of that of `a` are complete."""
    every = [{"id": device_id, "reason": f"why {device_id}"} for device_id in device_ids]
    return [{**each, "by": "alice", "at": "2026-01-01T12:00:00Z"} if each["id"] == "a" else each for each in every]


def stored(
    spec: Sequence[str] = (), remembered: Sequence[str] = (), ours: Sequence[str] = (), operation: str = "Apply"
) -> dict[str, Any]:
    """An object; ours: device IDs whose cordons our manager owns."""
    keys: dict[str, Any] = {f'k:{{"id":"{device_id}"}}': {} for device_id in ours}
    fields = {"f:spec": {"f:cordonedDevices": {".": {}, **keys}}}
    managers = [
        {"manager": "nodedevice-cordons", "operation": operation, "fieldsV1": fields},
        {"manager": "alice", "operation": "Apply", "fieldsV1": {"f:spec": {"f:cordonedDevices": {'k:{"id":"x"}': {}}}}},
    ]
    return {
        "metadata": {"name": "n", "uid": "nd", "resourceVersion": "7", "managedFields": managers},
        "spec": {"nodeName": NODE, "resourceName": GPU, "cordonedDevices": cordons(*spec)},
        "status": {"total": 1, "rememberedCordons": cordons(*remembered)},
    }


def schema(**fields: Any) -> CordonsSchema:
    return msgspec.json.decode(msgspec.json.encode(stored(**fields)), type=CordonsSchema)


@pytest.mark.parametrize(
    ("fields", "own", "missing"),
    [
        pytest.param({"spec": ["a"], "remembered": ["a", "b"]}, [], ["b"], id="not one that is there"),
        pytest.param({"spec": ["a"], "remembered": ["b"], "ours": ["a"]}, ["a"], ["b"], id="ours again, or it goes"),
        pytest.param({"spec": ["x"], "remembered": ["b"]}, [], ["b"], id="another manager's stays another's"),
        pytest.param(
            {"spec": ["a"], "remembered": ["b"], "ours": ["a"], "operation": "Update"}, [], ["b"], id="updates"
        ),
        pytest.param({"remembered": ["not due"]}, [], [], id="not due"),
    ],
)
def test_what_is_restored(fields: dict[str, Any], own: list[str], missing: list[str]) -> None:
    assert to_restore(schema(**fields), frozenset("abx")) == (cordons(*own), cordons(*missing))


def test_the_record_has_no_more_than_one_write_sets_again() -> None:
    ids = [f"d{number:03}" for number in range(300)]
    obj = msgspec.json.decode(msgspec.json.encode(stored(ids[:10], ids)), type=NodeDeviceSchema)
    assert node_device_record(obj).lost_cordons == frozenset(ids[10:266])


class Api(CordonsApi):
    """One object. failure: of the next write."""

    def __init__(self, remembered: Sequence[str]) -> None:
        self.remembered = remembered
        self.applied: list[list[str]] = []
        self.asked: list[str] = []
        self.failure: Exception | None = None
        self.found: CordonsSchema | None = None

    async def read_cordons(self, record: NodeDeviceRecord) -> CordonsSchema:
        return self.found or schema(remembered=self.remembered)

    async def apply_cordons(self, record: NodeDeviceRecord, found: CordonsSchema, applied: Sequence[Cordon]) -> None:
        self.asked.append(record.resource)
        if self.failure is not None:
            raise self.failure
        assert found == await self.read_cordons(record), "its version is what was read"
        self.applied.append([cordon["id"] for cordon in applied])


class Bench:
    def __init__(self, *remembered: str, **fields: Any) -> None:
        self.cache, self.recorder, self.memory = Cache(), RecordingRecorder(), CordonsMemory()
        self.budget = Budget()
        self.api = Api(remembered)
        self.reconciler = CordonReconciler(self.cache, self.api, self.recorder)
        self.cache.node_devices.put(node_device(lost_cordons=frozenset(remembered), **fields))

    async def reconcile(self) -> list[type]:
        turn = Turn(self.budget, lambda: False)
        return [type(failure) for failure in await self.reconciler.reconcile(NODE, self.memory, turn)]


async def test_each_cordon_is_set_once_in_an_object() -> None:
    """An administrator may remove it before an agent that is away has noticed that it was set."""
    bench = Bench("a", "b")
    assert [await bench.reconcile(), await bench.reconcile()] == [[], []]
    assert bench.api.applied == [["a", "b"]]
    (event,) = bench.recorder.posted
    assert (event.reason, event.message.split(": ")[-1]) == ("CordonsRestored", "a (by alice), b")
    bench.cache.node_devices.put(node_device(uid="another", resource_version=2, lost_cordons=frozenset("a")))
    bench.api.remembered = ["a"]
    await bench.reconcile()
    assert (bench.api.applied[1:], bench.memory.restored) == ([["a"]], {"another": {"a"}})


async def test_those_without_room_follow_when_there_is_some() -> None:
    """The API server refuses more than 128 KiB of cordons; < counts as six bytes."""
    bench = Bench("a", "b")
    wide = {"id": "x", "reason": "<" * 1000}
    obj = stored(remembered=["a", "b"])
    obj["spec"]["cordonedDevices"] = [{**wide, "id": f"x{number}"} for number in range(21)]
    room = 128 * 1024 - 21 * (64 + 3 + 6000) - (64 + 1 + len("why a") + len("alice"))
    obj["spec"]["cordonedDevices"] += [{"id": "y", "reason": "z" * (room - 65)}]
    full = msgspec.json.decode(msgspec.json.encode(obj), type=CordonsSchema)
    own, missing = to_restore(full, frozenset("ab"))
    assert (own, [cordon["id"] for cordon in missing]) == ([], ["a"])
    bench.api.found = full
    await bench.reconcile()
    await bench.reconcile()
    bench.api.found = None
    await bench.reconcile()
    assert bench.api.applied == [["a"], ["b"]]


@pytest.mark.parametrize(
    ("failure", "failures", "asked"),
    [
        pytest.param(Conflict, [Conflict, Conflict], [GPU, NIC], id="one object"),
        pytest.param(NotFound, [], [GPU, NIC], id="gone is no failure"),
        pytest.param(Unreachable, [Unreachable], [GPU], id="an API server that is away"),
    ],
)
async def test_a_failure_delays_no_other_object_unless_all_fail(
    failure: type[ApiError], failures: list[type], asked: list[str]
) -> None:
    bench = Bench("a")
    bench.cache.node_devices.put(node_device(NIC, lost_cordons=frozenset("a")))
    bench.api.failure = failure("PATCH", "nodedevices", "no")
    assert await bench.reconcile() == failures
    assert bench.api.asked == asked
    # what failed is repeated
    bench.api.failure = None
    await bench.reconcile()
    assert bench.api.applied == [["a"]] * 2


@pytest.mark.parametrize(
    "fields", [{"has_status": False}, {"name": "made-by-hand"}], ids=["not an agent's", "a wrong name"]
)
async def test_not_in_an_object_that_no_agent_has_written(fields: dict[str, Any]) -> None:
    bench = Bench("a", **fields)
    assert await bench.reconcile() == []
    assert bench.api.applied == []


async def test_one_that_lacks_nothing_delays_no_other() -> None:
    bench = Bench()
    bench.api.remembered = ["a"]
    bench.cache.node_devices.put(node_device(NIC, lost_cordons=frozenset("a")))
    assert await bench.reconcile() == []
    assert bench.api.applied == [["a"]]


async def test_no_more_are_set_at_once_than_the_budget_of_its_node_allows() -> None:
    bench = Bench("a")
    bench.cache.node_devices.put(node_device(NIC, lost_cordons=frozenset("a")))
    bench.budget = Budget(lambda: 100.0)
    for _ in range(REQUESTS_AT_ONCE - 1):
        bench.budget.spend()
    assert await bench.reconcile() == []
    assert bench.api.applied == [["a"]]
    assert bench.memory.restored == {node_device().uid: {"a"}}
