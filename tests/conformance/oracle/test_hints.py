"""Topology hints, number by number: what the kubelet's device manager proposes, and what our pure function does.

Placement as a whole is compared by sequences; this finds a wrong hint that no placement happened to show.
"""

from collections.abc import Mapping

from hypothesis import given, seed
from hypothesis import strategies as st
from nodedevice_agent.devicemanager.allocation.topology import Hint, Hints, hints
from nodedevice_agent.devicemanager.resources.devices import Device

from tests.conformance.oracle.conftest import Both, searching
from tests.oracle.steps import Admit, Ctr, Dev, Machine
from tests.oracle.strategies import GPU, NUMA, SEED, SEQUENCES, devices_on

_CASES = NUMA.flatmap(lambda numa: st.tuples(st.just(numa), devices_on((*numa, 9)), st.integers(0, 3)))


def test_hints_are_equal(both: Both) -> None:
    @seed(SEED)
    @searching(SEQUENCES // 5)
    @given(_CASES)
    def are_equal(case: tuple[tuple[int, ...], tuple[Dev, ...], int]) -> None:
        both.runner.run(_compare(both, *case))

    are_equal()


async def _compare(both: Both, numa: tuple[int, ...], listed: tuple[Dev, ...], taken: int) -> None:
    """Some devices are held by a pod; then another asks for 1, 2, ... and for one more than there are."""
    kubelet, _ = both.comparison.sides()
    await kubelet.start(Machine("best-effort", "container", numa))
    try:
        await kubelet.register(GPU, listed, advice=True)
        if taken:
            await kubelet.admit("holder", Admit((Ctr("app", {GPU: taken}),)))
        held = {device_id for ids in (await kubelet.maker.held()).values() for device_id in ids}
        devices = {device.id: Device(device.id, device.healthy, device.numa) for device in listed}
        free = [device.id for device in listed if device.healthy and device.id not in held]
        for count in range(1, len(listed) + 2):
            what = f"hints for {count} of {listed}, {sorted(held)} held"
            assert await _asked(both, count) == hints(devices, count, free, (), numa), what
    finally:
        await kubelet.stop()


async def _asked(both: Both, count: int) -> Hints:
    containers = [{"name": "c0", "kind": "app", "limits": {GPU: count}}]
    answer = await both.comparison.kubelet.ask("hints", pod={"uid": "asking", "containers": containers})
    assert answer["pod"] == answer["containers"]["c0"]
    found = answer["containers"]["c0"][GPU]
    return None if found is None else tuple(_hint(hint) for hint in found)


def _hint(answer: Mapping[str, object]) -> Hint:
    nodes = answer["nodes"]
    assert isinstance(nodes, list)
    return Hint(sum(1 << node for node in nodes), bool(answer["preferred"]))
