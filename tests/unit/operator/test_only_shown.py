"""What is only shown: nothing comes of a NodeDevice whose devices others give out, or whose name no Node can have as a resource.

Every feature that acts on NodeDevices is called with one that gives it reason to act, and with the same one only shown.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest
from nodedevice_api import names
from nodedevice_api.nodedevice import PartCounts
from nodedevice_operator.capacity.decide import contradictions
from nodedevice_operator.informers.store import Cache
from nodedevice_operator.leases.agent_liveness import ALIVE
from nodedevice_operator.objects.node import UNLABELED, NodeRecord
from nodedevice_operator.objects.node_parts import node_parts
from nodedevice_operator.objects.nodedevice import DeviceRecord, NodeDeviceRecord
from nodedevice_operator.objects.nodedevice_schema import NodeDeviceSchema
from nodedevice_operator.observability.events import EventReason
from nodedevice_operator.observability.transitions import transitions
from nodedevice_operator.reconcile.cordon_restorer import CordonReconciler, CordonsMemory
from nodedevice_operator.reconcile.turn import Budget, Turn
from nodedevice_operator.remediation.eviction_policy import candidates
from nodedevice_operator.remediation.node_taint_and_labels import desired_labels
from nodedevice_operator.requiredplugins.pending_pods import advertised
from nodedevice_operator.requiredplugins.policy import is_candidate, select

from tests.fakes.operator.collaborators import RecordingRecorder
from tests.fakes.operator.operator_model import GPU, OperatorModel, node_device, settle
from tests.unit.operator.objects.bodies import node_device_body, of_json
from tests.unit.operator.objects.records import held
from tests.unit.operator.reconcile.test_cordons import Api as Cordons

NODE: Final = NodeRecord("node-a", "uid-1", 1, {})
RESERVED: Final = "net.kubernetes.io/nic"
QUOTA: Final = "requests.example.com/gpu"

ONLY_SHOWN: Final = {
    "the kubelet gives it out": {"served_by": names.SERVED_BY_KUBELET},
    "DRA gives it out": {"served_by": names.SERVED_BY_DRA, "driver": "gpu.example.com", "pool": "node-a"},
    "DRA, of a driver of Kubernetes": {"served_by": names.SERVED_BY_DRA, "resource": RESERVED},
    "an agent serves a name of Kubernetes": {"resource": RESERVED},
    "an agent serves the name of a quota": {"resource": QUOTA},
}


def tempting(resource: str = GPU, **fields: Any) -> NodeDeviceRecord:
    """One that every feature has reason to act on: broken and held, cordoned, with a cordon to be set again, of a NRI node."""
    return node_device(
        resource,
        **{
            "delivery": names.DELIVERY_NRI,
            "total": 2,
            "healthy": 1,
            "available": 1,
            "allocated": 1,
            "cordons": 2,
            "cordoned": 2,
            "cordoned_ids": frozenset({"gpu-0", "gpu-1"}),
            "lost_cordons": frozenset({"gpu-0"}),
            "devices": {"gpu-0": DeviceRecord("Unhealthy", "Xid", False, ())},
            "listed": ("gpu-0", "gpu-1"),
            "allocations": (held("gpu-0"),),
            "parts": {"gpu-0": PartCounts(4, 4, 0, 4)},
            **fields,
        },
    )


def writes_capacity(record: NodeDeviceRecord) -> bool:
    model = OperatorModel()
    settle(model, [record])
    return bool(model.applies)


def keeps_capacity_when_its_agent_is_silent(record: NodeDeviceRecord) -> bool:
    model = OperatorModel(agent=replace(ALIVE, status="Unknown", is_withdrawn=True))
    settle(model, [record])
    return bool(model.applies)


def fights_over_a_foreign_number(record: NodeDeviceRecord) -> bool:
    model = OperatorModel()
    model.node.update("somebody", record.resource, 7)
    settle(model, [record])
    settle(model, [replace(record, endpoint="Gone", allocated=0, allocations=())])
    assert model.node.seen(record.resource).capacity == 7
    assert not model.applies
    conflict = model.condition(names.Condition.CONFLICT, record.resource)
    return conflict.status == "True" or bool(model.reported())


def is_taken_for_ours_later(record: NodeDeviceRecord) -> bool:
    """Whether a number of somebody else's is overwritten once an agent serves the name, as if it had been ours before."""
    model = OperatorModel()
    settle(model, [record])
    model.node.update("somebody", record.resource, 7)
    settle(model, [tempting(record.resource)])
    return model.node.seen(record.resource).capacity != 7


def makes_pods_wait(record: NodeDeviceRecord) -> bool:
    return is_candidate(record, NODE) and bool(select([record]).names)


def counts_as_guarded(record: NodeDeviceRecord) -> bool:
    """Whether its pending pods are taken to be annotated already."""
    model = OperatorModel()
    settle(model, [record])
    return bool(advertised(model.node_devices.values()))


def evicts(record: NodeDeviceRecord) -> bool:
    return bool(candidates([record], {"*": "evict"}))


def taints_or_labels(record: NodeDeviceRecord) -> bool:
    return desired_labels([record], taint=True, labels=True) != UNLABELED


def reports_cordons(record: NodeDeviceRecord) -> bool:
    before = replace(record, cordons=0, cordoned_ids=frozenset(), lost_cordons=frozenset())
    now = replace(record, lost_cordons=frozenset())
    return any(event.reason == EventReason.DEVICES_CORDONED for event in transitions(before, now))


def sets_cordons_again(record: NodeDeviceRecord) -> bool:
    cache, api = Cache(), Cordons(["gpu-0"])
    cache.node_devices.put(record)
    turn = Turn(Budget(lambda: 0.0), lambda: False)
    work = CordonReconciler(cache, api, RecordingRecorder()).reconcile("node-a", CordonsMemory(), turn)
    assert asyncio.run(work) == []
    return bool(api.applied)


def is_unready_by_cordons(record: NodeDeviceRecord) -> bool:
    model = OperatorModel()
    settle(model, [record])
    return model.condition(names.Condition.READY, record.resource).reason == names.Reason.ALL_CORDONED


def places_pods(record: NodeDeviceRecord) -> bool:
    """Whether the scheduler's extender chooses parts of it."""
    body = node_device_body(
        total=4,
        agent={"delivery": names.DELIVERY_NRI, "servedBy": record.served_by},
        parts={"advertise": "Total", "placement": "SameParent"},
        devices=[{"id": "g", "health": "Healthy", "parts": {"total": 4, "healthy": 4, "allocated": 0, "available": 4}}],
    )
    body["spec"]["resourceName"] = record.resource
    found = node_parts(of_json(body, NodeDeviceSchema))
    return found.rules is not None or bool(found.parents)


_CASES: Final[tuple[Callable[[NodeDeviceRecord], bool], ...]] = (
    writes_capacity,
    keeps_capacity_when_its_agent_is_silent,
    is_taken_for_ours_later,
    fights_over_a_foreign_number,
    places_pods,
    reports_cordons,
    is_unready_by_cordons,
    sets_cordons_again,
    evicts,
    taints_or_labels,
    makes_pods_wait,
    counts_as_guarded,
)


@pytest.mark.parametrize("case", _CASES, ids=[case.__name__ for case in _CASES])
def test_something_comes_of_what_an_agent_serves(case: Callable[[NodeDeviceRecord], bool]) -> None:
    assert case(tempting())


@pytest.mark.parametrize("fields", ONLY_SHOWN.values(), ids=list(ONLY_SHOWN))
@pytest.mark.parametrize("case", _CASES, ids=[case.__name__ for case in _CASES])
def test_nothing_comes_of_what_is_only_shown(case: Callable[[NodeDeviceRecord], bool], fields: dict[str, Any]) -> None:
    record = tempting(**fields)
    assert record.is_only_shown
    assert not case(record)


@pytest.mark.parametrize("delivery", [names.DELIVERY_NRI, names.DELIVERY_KUBELET])
@pytest.mark.parametrize(
    ("fields", "endpoint", "advertised_as"),
    [
        ({"served_by": names.SERVED_BY_DRA}, "Running", ("True", names.Reason.SERVED_BY_DRA)),
        ({"served_by": names.SERVED_BY_DRA}, "Gone", ("False", names.Reason.SERVED_BY_DRA)),
        ({"served_by": names.SERVED_BY_KUBELET}, "Running", ("False", names.Reason.SERVED_BY_KUBELET)),
        ({"resource": RESERVED}, "Running", ("False", names.Reason.NAME_RESERVED)),
        ({"resource": QUOTA}, "Running", ("False", names.Reason.NAME_RESERVED)),
        ({"resource": RESERVED, "served_by": names.SERVED_BY_DRA}, "Running", ("True", names.Reason.SERVED_BY_DRA)),
    ],
)
def test_its_conditions_say_who_gives_the_devices_out(
    fields: dict[str, Any], endpoint: str, advertised_as: tuple[str, str], delivery: str
) -> None:
    model = OperatorModel()
    record = tempting(**fields, endpoint=endpoint, delivery=delivery, cordons=0, allocated=0, allocations=())
    settle(model, [record])
    shown = model.condition(names.Condition.ADVERTISED, record.resource)
    ready = model.condition(names.Condition.READY, record.resource)
    assert (shown.status, shown.reason) == advertised_as
    assert "{" not in shown.message
    assert ready.status == shown.status
    assert model.condition(names.Condition.AGENT_READY, record.resource).status == "True"
    assert model.condition(names.Condition.CONFLICT, record.resource).status == "False"


def test_a_silent_agent_is_reported_and_withdraws_nothing() -> None:
    silent = replace(ALIVE, status="Unknown", reason=names.Reason.LEASE_EXPIRED, is_withdrawn=True)
    model = OperatorModel(agent=silent)
    settle(model, [tempting(**ONLY_SHOWN["DRA gives it out"])])
    assert model.condition(names.Condition.ADVERTISED).reason == names.Reason.SERVED_BY_DRA
    ready, agent = model.condition(names.Condition.READY), model.condition(names.Condition.AGENT_READY)
    assert (ready.status, ready.reason) == ("False", names.Reason.LEASE_EXPIRED)
    assert (agent.status, agent.reason) == ("Unknown", names.Reason.LEASE_EXPIRED)


def test_a_device_of_a_shared_claim_in_two_pods_is_no_contradiction() -> None:
    rows = (held("gpu-0"), held("gpu-0", pod="pod-b"))
    assert contradictions(tempting(allocations=rows, available=2))
    assert not contradictions(tempting(allocations=rows, available=2, served_by=names.SERVED_BY_DRA))
