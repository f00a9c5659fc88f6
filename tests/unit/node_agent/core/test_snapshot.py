"""The numbers of a resource at one moment, and which devices are named one by one."""

import pytest
from nodedevice_agent.core.devices import Device
from nodedevice_agent.core.snapshot import LISTED_WHOLE, snapshot

from tests.unit.node_agent.core.scenario import GPU, Scenario, device_ids, pod


def test_a_name_that_was_never_known_is_an_error() -> None:
    with pytest.raises(KeyError):
        snapshot(Scenario().manager, GPU)


def test_every_state_of_a_device_is_counted_where_it_belongs() -> None:
    scenario = Scenario(waits_for_runtime=True)
    scenario.plugin([*device_ids(6), Device("sick", healthy=False)])
    scenario.run(pod("p", gpu=1), pod("q", gpu=1), pod("r", gpu=1))
    scenario.gone("q")
    scenario.happens("cordoned", GPU, ["d2", "d3"])
    scenario.lists([f"d{index}" for index in range(1, 6)] + [Device("sick", healthy=False)])
    seen = scenario.snapshot()
    # d0 is held and missing, d1 releasing, d2 held and cordoned, d3 cordoned, d4 and d5 free
    assert (seen.total, seen.healthy, seen.cordoned) == (7, 5, 2)
    assert (seen.allocated, seen.releasing, seen.available) == (2, 1, 2)
    views = {view.id: view for view in seen.devices}
    assert list(views) == sorted(views)
    assert {name: view.healthy for name, view in views.items()} == {
        "d0": False,
        "d1": True,
        "d2": True,
        "d3": True,
        "d4": True,
        "d5": True,
        "sick": False,
    }
    assert (views["d0"].present, views["d0"].reason) == (False, "NotListed")
    assert (views["sick"].present, views["sick"].reason) == (True, "ReportedUnhealthy")
    assert [name for name, view in views.items() if view.cordoned] == ["d2", "d3"]
    assert [(h.allocation.pod_uid, h.releasing) for h in seen.held] == [("p", False), ("q", True), ("r", False)]


def test_devices_of_a_stopped_plugin_say_why() -> None:
    scenario = Scenario()
    scenario.plugin([Device("d0", numa_nodes=(1,))])
    scenario.disconnect()
    (view,) = scenario.snapshot().devices
    assert (view.healthy, view.present, view.reason, view.numa_nodes) == (False, True, "EndpointStopped", (1,))


@pytest.mark.parametrize(
    ("count", "named"),
    [
        pytest.param(LISTED_WHOLE, LISTED_WHOLE, id="whole up to the bound"),
        pytest.param(LISTED_WHOLE + 1, 4, id="above it, only those that somebody would look for"),
        pytest.param(100_000, 4, id="a hundred thousand"),
    ],
)
def test_devices_are_named_whole_or_in_part(count: int, named: int) -> None:
    scenario = Scenario()
    scenario.plugin([Device(f"d{index:06}") for index in range(count)])
    scenario.run(pod("p", gpu=2))
    scenario.lists([Device(f"d{index:06}", healthy=index != 5) for index in range(1, count)])
    scenario.happens("cordoned", GPU, ["d000007"])
    seen = scenario.snapshot()
    assert (seen.total, seen.healthy, seen.allocated, seen.available) == (count, count - 2, 2, count - 4)
    assert len(seen.devices) == named
    # missing, held, broken, cordoned
    assert {"d000000", "d000001", "d000005", "d000007"} <= {view.id for view in seen.devices}


def test_reading_changes_nothing() -> None:
    scenario = Scenario()
    scenario.plugin(device_ids(2))
    scenario.run(pod("p", gpu=1), pod("q", gpu=2))
    first = scenario.snapshot()
    scenario.manager.checkpoint()
    scenario.manager.waiting(GPU)
    scenario.manager.next_deadline()
    assert scenario.snapshot() == first
