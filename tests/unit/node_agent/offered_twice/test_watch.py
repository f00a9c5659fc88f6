"""When and how often sources are compared, what is published and logged of it, and what it costs."""

import asyncio
from collections.abc import Generator
from pathlib import Path

import pytest
from msgspec.structs import replace
from nodedevice_agent.devicemanager.resources.connections import BUILT_IN, PluginOptions
from nodedevice_agent.devicemanager.resources.devices import Device
from nodedevice_agent.dra.pools import Pool
from nodedevice_agent.offered_twice.offers import PoolOffer
from nodedevice_agent.offered_twice.watch import in_steps
from nodedevice_api.nodedevice import DeviceTaint

from tests.fakes.background import background
from tests.fakes.polling import until
from tests.fakes.virtual_time import virtual_time
from tests.unit.node_agent.devicemanager.scenario import GPU
from tests.unit.node_agent.lib.test_cdi_files import write
from tests.unit.node_agent.offered_twice.compared_node import DRIVER, OTHER, OURS, POOL, UUID, Disk, Node, gauges

MIG = "MIG-11111111-2222-3333-4444-555555555555"


@virtual_time
async def test_both_say_so_within_a_second_and_as_long_as_it_lasts(node: Node) -> None:
    async with background(node.twice.run()):
        node.kubelets(f"{UUID}::0", f"{UUID}::1", OTHER)
        await asyncio.sleep(1.0)
        assert not node.changed or not node.of(GPU)
        node.drivers({"gpu-0": {"uuid": UUID}})
        await asyncio.sleep(1.0)
        assert f"1 device is also offered by {POOL} (DRA driver {DRIVER}) and" in node.of(GPU)
        assert f"gpu-0 (there {UUID})" in node.of(POOL)
        assert gauges() == {GPU: 1, POOL: 1}
        node.changed.clear()
        node.drivers({"gpu-0": {"uuid": UUID}})
        await asyncio.sleep(5.0)
        assert node.changed == []
        node.drivers({"gpu-0": {"uuid": MIG}})
        await asyncio.sleep(1.0)
        assert (node.of(GPU), node.of(POOL), node.changed, gauges()) == ("", "", sorted([POOL, GPU]), {})


@virtual_time
async def test_nothing_is_compared_while_nothing_changes(node: Node) -> None:
    async with background(node.twice.run()):
        node.kubelets(UUID)
        node.drivers({"gpu-0": {"uuid": UUID}})
        await asyncio.sleep(100.0)
        before = node.comparisons
        await asyncio.sleep(10_000.0)
        assert node.comparisons == before
        for _ in range(100):
            node.twice.is_changed.set()
            await asyncio.sleep(0.01)
        await asyncio.sleep(5.0)
        assert node.comparisons <= before + 10, "changes of one second"


@virtual_time
async def test_what_was_published_before_the_start_stays_until_all_is_known(node: Node) -> None:
    node.are_known = False
    async with background(node.twice.run()):
        node.kubelets(UUID)
        await asyncio.sleep(10.0)
        assert not node.twice.is_known
        node.are_known = True
        node.drivers({"gpu-0": {"uuid": UUID}})
        await asyncio.sleep(1.0)
        assert node.twice.is_known
        assert {*node.changed} == {GPU, POOL}


@virtual_time
async def test_a_source_that_never_answers_is_waited_for_a_minute(node: Node) -> None:
    node.are_known = False
    node.kubelets(UUID)
    async with background(node.twice.run()):
        await asyncio.sleep(55.0)
        assert not node.twice.is_known
        await asyncio.sleep(10.0)
        assert node.twice.is_known
        assert GPU in node.changed, "it is published without what was there before"


@virtual_time
async def test_a_failed_comparison_is_made_again(node: Node) -> None:
    async def run() -> None:
        while True:
            try:
                await node.twice.run()
            except ZeroDivisionError:
                await asyncio.sleep(1.0)

    async with background(run()):
        node.kubelets(UUID)
        good = node.pools
        node.pools = lambda: iter([1 // 0])  # type: ignore[method-assign, list-item]
        await asyncio.sleep(3.0)
        node.pools = good  # type: ignore[method-assign]
        node.offered[POOL] = PoolOffer(POOL, Pool(DRIVER, "node", 0, {}), (), {})
        await asyncio.sleep(3.0)
        assert node.twice.is_known


@virtual_time
async def test_a_tainted_or_cordoned_device_is_not_offered_but_where_it_is_held(node: Node) -> None:
    taint = DeviceTaint(key="a", effect="NoSchedule")
    async with background(node.twice.run()):
        node.kubelets(UUID)
        node.drivers({"gpu-0": {"uuid": UUID}}, taints=(taint,))
        await asyncio.sleep(1.0)
        assert not node.of(GPU)
        node.drivers({"gpu-0": {"uuid": UUID}}, frozenset({"gpu-0"}), taints=(taint,))
        await asyncio.sleep(1.0)
        assert node.of(GPU)
        node.offered.clear()
        node.ours.plugin([UUID], OURS)
        node.twice.is_changed.set()
        await asyncio.sleep(1.0)
        assert OURS in node.of(GPU)
        node.ours.cordon(OURS, [UUID])
        node.twice.is_changed.set()
        await asyncio.sleep(1.0)
        assert not node.of(GPU)


@virtual_time
async def test_a_built_in_plugin_says_what_its_devices_are(node: Node) -> None:
    whole = Device(UUID, parent=UUID, identity=(UUID, "c195:0"), attributes=(("pciBusID", "0000:1b:00.0"),))
    instance = replace(whole, id=MIG, identity=(UUID, "c195:0", MIG), is_shared=True)
    async with background(node.twice.run()):
        node.ours.plugin([whole], OURS, options=PluginOptions(scope=f"{BUILT_IN}nvml"))
        node.drivers({"gpu-0": {"resource.kubernetes.io/pciBusID": "00000000:1B:00.0"}})
        await asyncio.sleep(1.0)
        assert node.of(OURS).endswith(f"take {OURS} out of this node's configuration")
        node.ours.lists([instance], OURS)
        node.twice.is_changed.set()
        await asyncio.sleep(1.0)
        assert not node.of(OURS), "the address is that of its GPU"
        node.drivers({"mig-0": {"uuid": MIG}})
        await asyncio.sleep(1.0)
        assert MIG in node.of(OURS)
        node.ours.lists([replace(instance, identity=(UUID, "c195:0"))], OURS)
        node.twice.is_changed.set()
        await asyncio.sleep(1.0)
        assert not node.of(OURS), "the same device says less of itself"


def specify(root: Path, *devices: tuple[str, str]) -> None:
    """A CDI specification as a driver writes it, with one device file for each name."""
    write(root, "vendor.json", *devices, kind="k8s.vendor.example/claim")


async def test_files_of_held_devices_are_compared(node: Node, tmp_path: Path) -> None:
    specify(tmp_path, ("a", "/dev/gone7"), ("b", "/dev/gone8"))
    async with background(node.twice.run()):
        node.kubelets("some-name", "other", held={"some-name": "one"}, files=("/dev/nvidiactl", "/host/dev/gone7"))
        node.drivers(
            {"first": {}, "second": {}},
            frozenset({"first", "second"}),
            {"first": ("k8s.vendor.example/claim=b",), "second": ("k8s.vendor.example/claim=a",)},
        )
        await until(lambda: bool(node.of(GPU)))
        assert "some-name (there second); 1 in use here and 1 there, 1 in both" in node.of(GPU)
        # one name of CDI, which both devices of the claim have
        specify(tmp_path, ("a", "/dev/gone9"), ("c", "/dev/gone7"))
        names = ("k8s.vendor.example/claim=c", "k8s.vendor.example/claim=a")
        node.drivers({"first": {}, "second": {}}, frozenset({"first", "second"}), {"first": names, "second": names})
        await until(lambda: "some-name (there first or second)" in node.of(GPU))


async def test_a_plugin_of_the_kubelet_may_answer_with_cdi_devices(node: Node, tmp_path: Path) -> None:
    specify(tmp_path, ("a", "/dev/gone7"))
    async with background(node.twice.run()):
        node.ours.plugin(["/dev/gone7"], OURS)
        node.kubelets("some-name", held={"some-name": "one"}, cdi="k8s.vendor.example/claim=a")
        await until(lambda: bool(node.of(OURS)))
        assert "/dev/gone7 (there some-name)" in node.of(OURS)


@pytest.mark.parametrize(
    ("path", "ids", "is_twice"),
    [
        pytest.param("/dev/gone7", ("some-name", "other"), True, id="a file with a number in its name"),
        pytest.param("/dev/gone7", (MIG, "other"), False, id="of an instance, whose files are its GPU's"),
        pytest.param("/dev/gone", ("some-name",), True, id="a file without a number, of the only device"),
        pytest.param("/dev/gone", ("some-name", "other"), False, id="a file without a number, of one of two"),
    ],
)
@virtual_time
async def test_the_files_of_a_response_are_of_its_devices(path: str, ids: tuple[str, ...], is_twice: bool) -> None:
    node = Node(Disk())
    node.ours.plugin([path], OURS)
    async with background(node.twice.run()):
        node.kubelets(*ids, held={ids[0]: "one"}, files=(path,))
        await asyncio.sleep(2.0)
        assert bool(node.of(GPU)) is is_twice


@virtual_time
async def test_of_a_container_the_last_response_counts() -> None:
    node = Node(Disk())
    node.ours.plugin(["/dev/gone7"], OURS)
    async with background(node.twice.run()):
        for device_id, path, is_twice in (("a", "/dev/gone7", True), ("b", "/dev/gone8", False)) * 2:
            node.kubelets("a", "b", held={device_id: "one"}, files=(path,))
            await asyncio.sleep(2.0)
            assert bool(node.of(GPU)) is is_twice


def with_two_sources(disk: Disk) -> Node:
    node = Node(disk)
    node.kubelets(UUID)
    node.drivers({"gpu-0": {"uuid": OTHER}})
    return node


@virtual_time
@pytest.mark.parametrize(("seconds", "pause"), [(0.0, 0.0), (0.05, 0.2), (10.0, 0.8)])
async def test_after_a_comparison_is_a_pause_of_four_times_as_long_up_to_a_bound(seconds: float, pause: float) -> None:
    disk = Disk(seconds)
    node = with_two_sources(disk)

    async def changing() -> None:
        while True:
            node.twice.is_changed.set()
            await asyncio.sleep(0.001)

    async with background(node.twice.run()), background(changing()):
        await asyncio.sleep(30.0)
    first, second = disk.read_at[:2]
    assert second - first == pytest.approx(0.2 + seconds + pause, abs=0.01)


@virtual_time
async def test_a_disk_that_hangs_is_asked_again_half_a_minute_later() -> None:
    disk = Disk(hangs=True)
    async with background(with_two_sources(disk).twice.run()):
        await asyncio.sleep(30.0)
        assert len(disk.read_at) == 1
        await asyncio.sleep(1.0)
        assert len(disk.read_at) == 2
        disk.hangs = False
        await asyncio.sleep(1000.0)
        assert len(disk.read_at) == 3, "it was due when the disk answered again"


@virtual_time
async def test_the_beginning_and_the_end_are_logged_once(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with background(node.twice.run()):
        node.kubelets(UUID)
        for uuid in (UUID, UUID, UUID, OTHER, OTHER):
            node.drivers({"gpu-0": {"uuid": uuid}})
            await asyncio.sleep(2.0)
    logged = [(each.levelname, each.message, vars(each)["resource_name"]) for each in caplog.records]
    begun, ended = "devices are offered twice", "devices are no longer offered twice"
    assert sorted(logged) == sorted(
        (level, message, name) for level, message in (("WARNING", begun), ("INFO", ended)) for name in (GPU, POOL)
    )
    assert all(UUID in vars(each)["error"] for each in caplog.records if each.message == begun)


async def test_long_work_gives_the_event_loop_back() -> None:
    """In proportion to the devices."""
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def work() -> Generator[None, None, int]:
        for _ in range(100_000):
            yield
        return 7

    async with background(turn()):
        assert await in_steps(work()) == 7
    assert 100 < turns < 10_000
