"""What must never happen on the made-up host, decided by what the hardware is and by the numbers in the containers alone.

Knows which stick is which; uses nothing of what the product says of its devices but their IDs and the files that it gives for them.
"""

from collections import Counter
from collections.abc import Iterable

from nodedevice_agent.devicemanager.records.allocations import AllocationKey

from tests.robustness.host.referee.containers import ContainerChecks
from tests.robustness.host.referee.held import HeldDevices
from tests.robustness.host.referee.offer_checks import OfferChecks
from tests.robustness.host.referee.records import Counts
from tests.robustness.host.referee.waits import Wait
from tests.robustness.host.world import World


class Referee:
    """Its checks raise Breach."""

    def __init__(self, world: World) -> None:
        self._world, self._counts = world, Counts()
        self._devices = HeldDevices(world)
        self._containers = ContainerChecks(world, self._devices, self._counts)
        self._offers = OfferChecks(world, self._devices, self._counts)

    @property
    def checks(self) -> dict[str, int]:
        """How much was compared, by kind; without any nothing is shown."""
        return self._counts.checks

    @property
    def waits(self) -> Counter[Wait]:
        """How often each unavoidable wait was met."""
        return self._counts.waits

    def agent_killed(self, saved: Iterable[AllocationKey]) -> None:
        self._devices.agent_killed(saved)

    def check(self) -> None:
        """After a step."""
        if self._world.agent is None:
            return
        self._counts.checks["held"] += self._devices.check()
        started, self._world.started = self._world.started, None
        if started is not None:
            self._containers.check(started)
        self._offers.check()
        self._devices.step_ended()

    def check_idle(self) -> None:
        """No pod is there any more: each device that is not cordoned can be had, under one of its names."""
        self._offers.check_idle()

    def check_waiting(self) -> None:
        """No pod waits for what is free."""
        self._offers.check_waiting()
