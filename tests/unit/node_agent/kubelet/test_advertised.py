"""Devices that are advertised to the kubelet, and those it should prefer."""

import pytest
from nodedevice_agent.devicemanager.allocation.topology import Topology, TopologyPolicy
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.devicemanager.resources.devices import Device, accept
from nodedevice_agent.devicemanager.resources.presence import STOP_GRACE_PERIOD_SECONDS
from nodedevice_agent.devicemanager.resources.resource import Resource
from nodedevice_agent.kubelet.advertised import (
    KubeletRegistration,
    KubeletRegistrationState,
    advertised,
    injectable,
    select_preferred,
)

DEVICES = (Device("d0"), Device("d1", healthy=False), Device("d2", numa_nodes=(1,)), Device("d3"))


def resource(*devices: Device, cordons: tuple[str, ...] = (), held: tuple[str, ...] = ()) -> Resource:
    found = Resource("example.com/gpu")
    found.connect(1, PluginOptions(pre_start_required=True))
    found.list(1, accept(devices or DEVICES), 0.0)
    found.use.cordoned_ids = frozenset(cordons)
    found.use.holders = dict.fromkeys(held, "uid")
    return found


@pytest.mark.parametrize(
    ("cordons", "held", "healthy"),
    [
        pytest.param((), (), ["d0", "d2", "d3"], id="as the plugin says"),
        pytest.param(("d0",), (), ["d2", "d3"], id="a free cordoned one is unhealthy"),
        pytest.param(("d0",), ("d0",), ["d0", "d2", "d3"], id="a held cordoned one stays healthy"),
        pytest.param(("*",), ("d3",), ["d3"], id="all are cordoned, one is held"),
        pytest.param(("d1",), ("d1",), ["d0", "d2", "d3"], id="a held broken one is broken"),
    ],
)
def test_advertised_health(cordons: tuple[str, ...], held: tuple[str, ...], healthy: list[str]) -> None:
    found = advertised(resource(cordons=cordons, held=held))
    assert found is not None
    assert [device.id for device in found.devices] == ["d0", "d1", "d2", "d3"]
    assert [device.id for device in found.devices if device.is_healthy] == healthy
    assert found.devices[2].numa_nodes == (1,)
    assert found.options == PluginOptions(pre_start_required=True)


def test_a_device_that_is_delivered_in_another_way_is_not_offered() -> None:
    found = resource(held=("d0", "d2"))

    class Elsewhere(set[str]):
        """The list is replaced when this is read: long lists are prepared in a thread."""

        def __contains__(self, device_id: object) -> bool:
            found.list(1, accept(DEVICES[:3]), 0.0)
            return super().__contains__(device_id)

    shown = advertised(found, Elsewhere({"d0"}))
    assert shown is not None
    assert [device.id for device in shown.devices if device.is_healthy] == ["d2"]


def test_devices_of_a_disconnected_plugin_are_unhealthy_until_its_grace_period_ends() -> None:
    found = resource(held=("d0",))
    found.disconnect(1, 10.0)
    shown = advertised(found)
    assert shown is not None
    assert not any(device.is_healthy for device in shown.devices)
    assert shown.options is None
    assert found.presence.grace_ends_at == 10.0 + STOP_GRACE_PERIOD_SECONDS
    found.expire()
    assert advertised(found) is None


def test_nothing_is_shown_before_a_list_and_the_cordons_are_known() -> None:
    found = Resource("example.com/gpu")
    found.use.are_cordons_synced = False
    assert advertised(found) is None
    found.connect(1, PluginOptions())
    assert advertised(found) is None
    found.list(1, accept([]), 0.0)
    assert advertised(found) is None
    found.use.are_cordons_synced = True
    shown = advertised(found)
    assert shown is not None
    assert shown.devices == ()


NUMA = tuple(Device(f"d{index}", numa_nodes=(index % 2,)) for index in range(6))


@pytest.mark.parametrize(
    ("cordons", "available", "must", "size", "policy", "expected"),
    [
        pytest.param((), "023", "", 2, TopologyPolicy.NONE, ("d0", "d2"), id="in order"),
        pytest.param(("d0",), "0235", "", 2, TopologyPolicy.NONE, ("d2", "d3"), id="what is cordoned is left out"),
        pytest.param(("d0",), "02", "", 2, TopologyPolicy.NONE, ("d2",), id="rather fewer than a cordoned one"),
        pytest.param((), "0135", "0", 2, TopologyPolicy.BEST_EFFORT, ("d0", "d1"), id="near the settled, or else any"),
        pytest.param((), "01234", "2", 3, TopologyPolicy.BEST_EFFORT, ("d2", "d0", "d4"), id="near what is settled"),
        pytest.param((), "0234", "1", 2, TopologyPolicy.BEST_EFFORT, ("d1", "d3"), id="no node without the settled"),
        pytest.param((), "09", "", 1, TopologyPolicy.NONE, ("d0",), id="an ID that is not listed"),
    ],
)
def test_advice(
    cordons: tuple[str, ...], available: str, must: str, size: int, policy: TopologyPolicy, expected: tuple[str, ...]
) -> None:
    found = select_preferred(
        resource(*NUMA, cordons=cordons),
        Topology(policy, numa_nodes=(0, 1)),
        [f"d{index}" for index in reversed(available)],
        [f"d{index}" for index in must],
        size,
    )
    assert found.completed() == expected


@pytest.mark.parametrize("stand", KubeletRegistrationState)
def test_each_registration_state_has_its_own_reason_and_message(stand: KubeletRegistrationState) -> None:
    status, reason, message = injectable(KubeletRegistration(stand, "no\nway " + "x" * 5000))
    assert status == ("True" if stand is KubeletRegistrationState.REGISTERED else "False")
    assert message.isprintable()
    assert len(message) < 1024
    assert ("no way" in message) == ("{}" in stand.value[2]), "the cause, where there is one"
    others = [injectable(KubeletRegistration(other)) for other in KubeletRegistrationState if other is not stand]
    assert reason not in [other[1] for other in others]
