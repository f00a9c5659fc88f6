"""`make bench`: what is measured does not wait for what the agent delays on purpose."""

from itertools import pairwise

from nodedevice_agent.devicemanager.deadlines import Deadlines
from nodedevice_agent.devicemanager.resources.devices import Device, ListedDevices, accept
from nodedevice_agent.devicemanager.resources.flap_damping import FlapDamping, FlapDampingLimits

from hack.bench.latency import CONFIGURED


def _listed(count: int) -> ListedDevices:
    return accept(Device(f"d-{number}") for number in range(count))


def test_configurations_that_follow_each_other_are_no_flapping() -> None:
    damping = FlapDamping(FlapDampingLimits(), "r", Deadlines())
    for number, (before, after) in enumerate(pairwise(CONFIGURED)):
        damping.record(_listed(before), _listed(after), 0.5 * number)
    assert not damping.damped
