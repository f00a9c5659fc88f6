"""Which NodeDevices are deleted, and what happens when one cannot be."""

import asyncio
import logging
from contextlib import nullcontext
from typing import Any

import pytest
from nodedevice_api import names
from nodedevice_api.names import Condition, Reason
from nodedevice_kube.api_errors import ApiError, Conflict, Denied, Forbidden, Invalid, NotLeading, Unavailable
from nodedevice_operator.informers.store import Cache
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord, StoredCondition
from nodedevice_operator.remediation.unused_nodedevices import (
    BY_KUBELET_SECONDS,
    GONE_SECONDS,
    GoneNodeDevices,
    NodeDevicesApi,
)

from tests.fakes.operator.collaborators import open_fence, running
from tests.fakes.operator.operator_model import GPU, NIC, node_device, not_configured, waits
from tests.fakes.virtual_time import virtual_time
from tests.unit.operator.objects.records import held

pytestmark = virtual_time
SINCE, SINCE_SECONDS = "2026-01-02T03:04:05Z", 1767323045.0


class Api(NodeDevicesApi):
    """Remembers what was deleted. `fails`: by NodeDevice, what its deletion raises."""

    def __init__(self) -> None:
        self.deleted: list[str] = []
        self.fails: dict[str, ApiError] = {}

    async def delete_node_device(self, record: NodeDeviceRecord) -> None:
        if record.resource in self.fails:
            raise self.fails[record.resource]
        self.deleted.append(record.resource)


def gone(resource: str = GPU, **fields: Any) -> NodeDeviceRecord:
    return node_device(resource, **{"endpoint": "Gone", "endpoint_since": SINCE, **fields})


def task(api: Api, *records: NodeDeviceRecord, seconds: float = GONE_SECONDS) -> GoneNodeDevices:
    """seconds: since SINCE."""
    cache = Cache()
    for store in cache.stores.values():
        store.replace(records if store is cache.node_devices else [], 1)
    return GoneNodeDevices(cache, api, open_fence(), lambda: SINCE_SECONDS + seconds)


@pytest.mark.parametrize(
    ("fields", "is_deleted"),
    [
        pytest.param({}, True, id="gone for an hour"),
        pytest.param({"endpoint_since": "2026-01-02T03:04:06Z"}, False, id="a second short of an hour"),
        pytest.param({"endpoint": "Stopped"}, False, id="its plugin restarts"),
        pytest.param({"endpoint": "Running"}, False, id="its plugin runs"),
        pytest.param({"endpoint": None}, False, id="without a status"),
        pytest.param({"allocated": 1}, False, id="devices are held"),
        pytest.param({"allocations": (held("gpu-0"),)}, False, id="allocations are listed"),
        pytest.param({"allocations_omitted": 1}, False, id="allocations are omitted"),
        pytest.param({"releasing": 1}, False, id="a container has not ended"),
        pytest.param({"waiting": (waits("uid-a", "main", "NotEnoughDevices"),)}, False, id="a pod waits"),
        pytest.param({"cordons": 1}, False, id="an administrator's cordon"),
        pytest.param({"cordons": 1, "served_by": "kubelet"}, False, id="one that may have an effect one day"),
        pytest.param({"cordons": 1, "served_by": "dra"}, True, id="a cordon without effect"),
        pytest.param({"allocated": 1, "served_by": "dra"}, False, id="a driver's devices are held"),
    ],
)
async def test_what_nobody_uses_is_deleted(fields: dict[str, Any], is_deleted: bool) -> None:
    api = Api()
    await task(api, gone(**fields)).reconcile()
    assert api.deleted == ([GPU] if is_deleted else [])


@pytest.mark.parametrize(
    ("error", "is_raised", "deleted"),
    [
        pytest.param(Conflict("DELETE", "nodedevices", "the version differs", 409), False, [NIC], id="changed"),
        # refused by itself: it delays no other, and is not forgotten
        pytest.param(Denied("DELETE", "nodedevices", "webhook denied it", 403), True, [NIC], id="denied"),
        pytest.param(Unavailable("DELETE", "nodedevices", "failed calling webhook", 500), True, [NIC], id="no webhook"),
        pytest.param(Invalid("DELETE", "nodedevices", "a finalizer", 422), True, [NIC], id="invalid"),
        # others would fail with it, too
        pytest.param(Forbidden("DELETE", "nodedevices", "no such role", 403), True, [], id="no role"),
        pytest.param(Unavailable("DELETE", "nodedevices", "overloaded", 503), True, [], id="overloaded"),
        pytest.param(NotLeading("DELETE", "nodedevices", "another leads"), True, [], id="another leads"),
    ],
)
async def test_a_deletion_that_fails(error: ApiError, is_raised: bool, deleted: list[str]) -> None:
    api = Api()
    api.fails[GPU] = error
    with pytest.raises(type(error)) if is_raised else nullcontext():
        await task(api, gone(GPU), gone(NIC)).reconcile()
    assert api.deleted == deleted


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (gone(), "its device plugin is gone"),
        (gone(served_by=names.SERVED_BY_DRA), "its DRA driver has no ResourceSlice of the node any more"),
        (not_configured(endpoint_since=SINCE), "nothing configures it any more"),
    ],
    ids=["a plugin", "a driver", "its configuration"],
)
async def test_a_deletion_is_logged_with_the_reason(
    record: NodeDeviceRecord, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await task(Api(), record).reconcile()
    [line] = [vars(each) for each in caplog.records]
    assert line["message"] == "unused NodeDevice deleted"
    assert (line["nodedevice"], line["since"], line["reason"]) == (record.name, SINCE, why)


async def test_a_refusal_is_logged_once_also_across_leads_and_retried(caplog: pytest.LogCaptureFixture) -> None:
    api = Api()
    work = task(api, gone())
    async with running(work.work()):
        api.fails[GPU] = NotLeading("DELETE", "nodedevices", "another leads")
        await asyncio.sleep(600)
        api.fails[GPU] = Forbidden("DELETE", "nodedevices", "no such role", 403)
        await asyncio.sleep(600)
        work.fence.close()
        await asyncio.sleep(100)
        work.fence.open_for_good()
        await asyncio.sleep(100)
        api.fails.clear()
        await asyncio.sleep(60)
    assert set(api.deleted) == {GPU}
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [each.message for each in warnings] == ["NodeDevice cannot be deleted; retrying"]
    assert "no such role" in vars(warnings[0])["error"]


def advertised(status: str, reason: str) -> dict[str, StoredCondition]:
    """The conditions of one that is not configured, and this Advertised."""
    return {**not_configured().conditions, Condition.ADVERTISED: StoredCondition(status, reason, "", "then", 1)}


@pytest.mark.parametrize(
    ("fields", "is_deleted"),
    [
        pytest.param({}, True, id="nobody needs it"),
        pytest.param({"conditions": advertised("True", Reason.BY_KUBELET)}, False, id="the kubelet counts it"),
        pytest.param({"is_withdrawn": False}, False, id="its capacity was not decided yet"),
        pytest.param({"conditions": advertised("True", Reason.ADVERTISED)}, False, id="the Node shows it still"),
        pytest.param({"conditions": advertised("False", Reason.UPDATE_REFUSED)}, False, id="its withdrawal is refused"),
        pytest.param({"conditions": advertised("False", Reason.NODE_MISSING)}, False, id="it is of another Node"),
        pytest.param({"endpoint": "Running"}, False, id="a plugin has registered again"),
        pytest.param({"allocated": 1}, False, id="devices are held"),
        pytest.param({"lost_cordons": frozenset({"gpu-0"})}, False, id="a cordon of the object before it"),
        pytest.param({"is_withdrawn": False, "served_by": "kubelet"}, True, id="the kubelet's, and not ours"),
        # drivers are not observed any more
        pytest.param({"is_withdrawn": False, "served_by": "dra", "cordons": 1}, True, id="a cordon that had no effect"),
        pytest.param({"served_by": "kubelet", "endpoint": "Running"}, False, id="the kubelet serves it again"),
    ],
)
@pytest.mark.parametrize("reason", [Reason.NOT_CONFIGURED, Reason.PLACE_TAKEN])
async def test_what_its_agent_has_ended_is_deleted_without_a_wait(
    reason: str, fields: dict[str, Any], is_deleted: bool
) -> None:
    api = Api()
    await task(api, not_configured(endpoint_since=SINCE, reason=reason, **fields), seconds=0).reconcile()
    assert api.deleted == ([GPU] if is_deleted else [])


@pytest.mark.parametrize(
    ("seconds", "fields", "is_deleted"),
    [
        pytest.param(BY_KUBELET_SECONDS - 1, {}, False, id="the kubelet may have it still"),
        pytest.param(BY_KUBELET_SECONDS, {}, True, id="it has dropped it"),
        pytest.param(BY_KUBELET_SECONDS, {"waiting": (waits("uid-a", "main", "x"),)}, False, id="a pod waits"),
        pytest.param(BY_KUBELET_SECONDS, {"delivery": "nri"}, False, id="of another runtime, and not withdrawn"),
        pytest.param(BY_KUBELET_SECONDS, {"conditions": node_device().conditions}, False, id="gone for another reason"),
    ],
)
async def test_where_the_kubelet_counts_it_the_kubelet_drops_it_first(
    seconds: float, fields: dict[str, Any], is_deleted: bool
) -> None:
    api, conditions = Api(), advertised("False", Reason.BY_KUBELET)
    fields = {"delivery": "kubelet", "conditions": conditions, "endpoint_since": SINCE, **fields}
    await task(api, not_configured(**fields), seconds=seconds).reconcile()
    assert api.deleted == ([GPU] if is_deleted else [])


async def test_a_reconcile_of_its_node_begins_the_deletion_and_a_refusal_waits_for_the_round() -> None:
    api = Api()
    work = task(api, gone(NIC), seconds=0)
    async with running(work.work()):
        await asyncio.sleep(1)
        # a node without such a NodeDevice costs nothing
        work.reconciled("node-a")
        await asyncio.sleep(1)
        assert api.deleted == []
        work.cache.node_devices.put(not_configured(resource_version=2, endpoint_since=SINCE))
        work.reconciled("node-a")
        await asyncio.sleep(1)
        assert api.deleted == [GPU]
        api.fails[GPU] = Forbidden("DELETE", "nodedevices", "no such role", 403)
        work.reconciled("node-a")
        await asyncio.sleep(1)
        api.fails.clear()
        await asyncio.sleep(1)
        assert api.deleted == [GPU]
        await asyncio.sleep(30)
        assert len(api.deleted) > 1


@pytest.mark.parametrize("lacks", ["the lead", "a list"])
async def test_nothing_is_deleted_by_half_of_what_it_takes(lacks: str) -> None:
    api = Api()
    work = task(api, gone())
    if lacks == "the lead":
        work.fence.close()
    else:
        work.cache.node_devices.is_complete = False
    async with running(work.work()):
        await asyncio.sleep(600)
    assert api.deleted == []
