"""The PodDevices of one node: made, told, mended, refused and deleted."""

from dataclasses import replace

import pytest
from nodedevice_operator.errors import (
    Conflict,
    Forbidden,
    NotFound,
)
from nodedevice_operator.objects.pod import PodRecord
from nodedevice_operator.objects.poddevice import PodDeviceRecord

from tests.fakes.operator.operator_model import node_device
from tests.unit.operator.reconcile.look import POD_UID, Look, held, with_pod


class TestPodDevices:
    """PodDevices of the node, as its allocations say."""

    async def test_made_told_mended_and_deleted(self, edges: Look) -> None:
        with_pod(edges)
        await edges.see(node_device(allocated=1, allocations=(held("gpu-0"),)))
        assert "poddevice pod-a gpu-0" in await edges.look()
        assert edges.recorder.reasons() == ["DevicesAllocated"]
        await edges.see(node_device(allocated=2, allocations=(held("gpu-0", "gpu-1"),)))
        assert "poddevice pod-a gpu-0,gpu-1" in await edges.look()
        edges.cluster.pods.clear()
        await edges.see(node_device(available=2))
        assert f"delete pod-a {POD_UID}" in await edges.look()
        assert edges.recorder.reasons() == ["DevicesAllocated"]

    async def test_refused_once_and_without_harm_to_the_neighbour(self, edges: Look) -> None:
        with_pod(edges, node="node-b", name="stolen", uid="pod-uid-b")
        with_pod(edges)
        await edges.see(node_device(available=1))
        await edges.look()
        claims = (held("gpu-1", uid="pod-uid-b", name="stolen"), held("gpu-0"))
        await edges.see(node_device(allocated=2, allocations=claims))
        assert "poddevice pod-a gpu-0" in await edges.look()
        await edges.look()
        assert sorted(edges.recorder.reasons()) == ["AllocationRefused", "DevicesAllocated"]
        assert ("default", "stolen") not in edges.cluster.pod_devices

    async def test_what_came_while_no_operator_ran_is_refused_as_well(self, edges: Look) -> None:
        with_pod(edges, node="node-b")
        await edges.see(node_device(allocated=1, allocations=(held("gpu-0"),)))
        await edges.look()
        assert edges.recorder.reasons() == ["AllocationRefused"]
        # the next process says the same, and then there is such an Event already
        edges.work.forget()
        await edges.look()
        first, again = edges.recorder.posted
        assert first == again
        assert first.is_standing

    async def test_a_pod_that_is_not_bound_is_refused_once_and_believed_when_it_is(
        self, edges: Look, caplog: pytest.LogCaptureFixture
    ) -> None:
        with_pod(edges, node="")
        for healthy in range(4):
            await edges.see(node_device(healthy=healthy, allocated=1, allocations=(held("gpu-0"),)))
            await edges.look()
        assert edges.recorder.reasons() == ["AllocationRefused"]
        assert [record.message for record in caplog.records].count("allocation refused") == 1
        with_pod(edges)
        assert "poddevice pod-a gpu-0" in await edges.look()

    async def test_a_pod_that_is_refused_to_a_node_again_is_told_again(self, edges: Look) -> None:
        with_pod(edges, node="")
        for allocations in ((held("gpu-0"),), (), (held("gpu-0"),)):
            await edges.see(node_device(allocations=allocations))
            await edges.look()
        assert edges.recorder.reasons() == ["AllocationRefused"] * 2

    @pytest.mark.parametrize("pod", [None, PodRecord("another-uid", "node-a"), PodRecord("another-uid", "node-b")])
    async def test_a_pod_that_is_gone_is_passed_over_in_silence(self, edges: Look, pod: PodRecord | None) -> None:
        if pod is not None:
            edges.cluster.pods["default", "pod-a"] = pod
        await edges.see(node_device(allocated=1))
        await edges.look()
        await edges.see(node_device(allocated=1, allocations=(held("gpu-0"),)))
        await edges.look()
        assert edges.cluster.pod_devices == {}
        assert edges.recorder.reasons() == []

    async def test_the_next_pod_of_that_name_replaces_the_object(self, edges: Look) -> None:
        with_pod(edges)
        await edges.see(node_device(allocated=1, allocations=(held("gpu-0"),)))
        await edges.look()
        with_pod(edges, uid="pod-uid-new")
        await edges.see(node_device(allocated=1, allocations=(held("gpu-1", uid="pod-uid-new"),)))
        writes = await edges.look()
        assert [write for write in writes if "pod-a" in write] == [f"delete pod-a {POD_UID}", "poddevice pod-a gpu-1"]

    async def test_one_that_vanished_is_made_again_without_a_second_event(self, edges: Look) -> None:
        with_pod(edges)
        await edges.see(node_device(allocated=1, allocations=(held("gpu-0"),)))
        await edges.look()
        edges.cluster.pod_devices.clear()
        changed = node_device(allocated=2, allocations=(held("gpu-0", "gpu-1"),))
        edges.cache.node_devices.put(replace(changed, resource_version=9999))
        with pytest.raises(Conflict):
            await edges.look()
        assert "poddevice pod-a gpu-0,gpu-1" in await edges.look()
        assert edges.recorder.reasons() == ["DevicesAllocated"]

    async def test_orphans_stay_while_a_nodedevice_says_nothing(self, edges: Look) -> None:
        orphan = PodDeviceRecord("default", "pod-z", "uid-z", 5, "node-a", "pod-uid-z", "")
        edges.cluster.pod_devices[orphan.key] = orphan
        await edges.see(node_device(has_status=False))
        assert await edges.look() == []
        await edges.see(node_device(available=1))
        assert "delete pod-z pod-uid-z" in await edges.look()

    async def test_orphans_of_a_node_that_nothing_is_known_of_are_deleted(self, edges: Look) -> None:
        orphan = PodDeviceRecord("default", "pod-z", "uid-z", 5, "node-gone", "pod-uid-z", "")
        edges.cluster.pod_devices[orphan.key] = orphan
        await edges.see()
        await edges.work.look("node-gone")
        assert edges.cluster.pod_devices == {}

    async def test_a_namespace_that_goes_away_is_no_failure(self, edges: Look) -> None:
        with_pod(edges)
        edges.cluster.failures["apply_pod_device"] = [NotFound("patch", "poddevices", "terminating", 403)]
        await edges.see(node_device(allocated=1, allocations=(held("gpu-0"),)))
        await edges.look()
        assert edges.cluster.pod_devices == {}

    async def test_a_refused_poddevice_does_not_hold_up_the_conditions(self, edges: Look) -> None:
        with_pod(edges)
        record = node_device(allocated=1, allocations=(held("gpu-0"),))
        edges.cluster.failures["apply_pod_device"] = [Forbidden("patch", "poddevices", "no", 403)]
        await edges.see(record)
        with pytest.raises(Forbidden):
            await edges.look()
        assert f"conditions {record.name}" in edges.cluster.writes
