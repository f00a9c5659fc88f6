"""The PodDevices of one node: made, reported, repaired, refused and deleted."""

from dataclasses import replace

import pytest
from nodedevice_kube.api_errors import ApiError, Forbidden, NotFound
from nodedevice_operator.objects.poddevice import PodDeviceRecord
from nodedevice_operator.objects.unwatched import PodRecord

from tests.fakes.operator.operator_model import node_device
from tests.unit.operator.objects.records import held
from tests.unit.operator.reconcile.bench import Bench, with_pod

ENDING = NotFound("patch", "poddevices", "terminating", 403)
ORPHAN = PodDeviceRecord("default", "pod-z", "uid-z", 5, "node-a", "pod-uid-z", "")


class TestPodDevices:
    """PodDevices of the node, as its allocations report."""

    async def test_refused_once_and_without_harm_to_the_neighbour(self, bench: Bench) -> None:
        with_pod(bench, "stolen", node="node-b")
        with_pod(bench)
        await bench.settle(node_device(available=1))
        claims = (held("gpu-1", pod="stolen"), held("gpu-0"))
        await bench.see(node_device(allocated=2, allocations=claims))
        assert "poddevice pod-a gpu-0" in await bench.reconcile()
        await bench.reconcile()
        assert sorted(bench.recorder.reasons()) == ["AllocationRefused", "DevicesAllocated"]
        assert ("default", "stolen") not in bench.cluster.pod_devices

    async def test_what_came_while_no_operator_ran_is_refused_as_well(self, bench: Bench) -> None:
        with_pod(bench, node="node-b")
        await bench.settle(node_device(allocated=1, allocations=(held("gpu-0"),)))
        assert bench.recorder.reasons() == ["AllocationRefused"]
        # the next process reports the same, and then there is such an Event already
        bench.restart()
        await bench.reconcile()
        first, again = bench.recorder.posted
        assert first == again
        assert first.is_ongoing

    async def test_a_pod_is_refused_once_until_its_bind(self, bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
        with_pod(bench, node="")
        for healthy in range(4):
            await bench.settle(node_device(healthy=healthy, allocated=1, allocations=(held("gpu-0"),)))
        assert bench.recorder.reasons() == ["AllocationRefused"]
        assert [record.message for record in caplog.records].count("allocation refused") == 1
        with_pod(bench)
        assert "poddevice pod-a gpu-0" in await bench.reconcile()

    async def test_a_pod_that_is_refused_to_a_node_again_is_reported_again(self, bench: Bench) -> None:
        with_pod(bench, node="")
        for allocations in ((held("gpu-0"),), (), (held("gpu-0"),)):
            await bench.settle(node_device(allocations=allocations))
        assert bench.recorder.reasons() == ["AllocationRefused"] * 2

    @pytest.mark.parametrize(
        ("pod", "failures", "reasons"),
        [
            pytest.param(None, [], [], id="there is none"),
            pytest.param(PodRecord("another-uid", "node-a"), [], [], id="another has its name"),
            pytest.param(PodRecord("another-uid", "node-b"), [], [], id="another has its name elsewhere"),
            pytest.param(PodRecord("uid-pod-a", "node-b"), [], ["AllocationRefused"], id="it runs elsewhere"),
            pytest.param(PodRecord("uid-pod-a", "node-a"), [ENDING], [], id="its namespace goes away"),
        ],
    )
    async def test_a_pod_without_an_object_is_looked_up_once(
        self, bench: Bench, pod: PodRecord | None, failures: list[ApiError], reasons: list[str]
    ) -> None:
        if pod is not None:
            bench.cluster.pods["default", "pod-a"] = pod
        bench.cluster.failures["apply_pod_device"] = failures
        await bench.settle(node_device(allocated=1))
        for healthy in range(3):
            await bench.settle(node_device(healthy=healthy, allocated=1, allocations=(held("gpu-0"),)))
        assert (bench.cluster.calls["read_pod"], bench.cluster.pod_devices) == (1, {})
        assert bench.recorder.reasons() == reasons

    async def test_orphans_stay_while_a_nodedevice_reports_nothing(self, bench: Bench) -> None:
        bench.cluster.pod_devices[ORPHAN.key] = ORPHAN
        await bench.see(node_device(has_status=False))
        assert await bench.reconcile() == []
        await bench.see(node_device(available=1))
        assert "delete pod-z pod-uid-z" in await bench.reconcile()

    async def test_orphans_of_a_node_that_nothing_is_known_of_are_deleted(self, bench: Bench) -> None:
        bench.cluster.pod_devices[ORPHAN.key] = replace(ORPHAN, node="node-gone")
        await bench.see()
        await bench.reconciler.reconcile("node-gone")
        assert bench.cluster.pod_devices == {}

    async def test_a_refused_poddevice_holds_up_neither_other_pods_nor_the_conditions(self, bench: Bench) -> None:
        for name in ("pod-a", "pod-b"):
            with_pod(bench, name)
        bench.cluster.failures["apply_pod_device"] = [Forbidden("patch", "poddevices", "no", 403)]
        allocations = (held("gpu-0"), held("gpu-1", pod="pod-b"))
        record = node_device(allocated=2, allocations=allocations)
        await bench.see(record)
        with pytest.raises(Forbidden):
            await bench.reconcile()
        assert list(bench.cluster.pod_devices) == [("default", "pod-b")]
        assert f"conditions {record.name}" in bench.cluster.writes
