"""A restart does not change a Node's numbers, with or without the checkpoint, in any order of plugins and API; nor since when a
container has its devices.

Plugins here always list the same devices, so a number can only fall because a plugin is not connected; and that is not
published while the resource settles.
"""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec import structs
from nodedevice_agent.checkpoint.format import decode, encode
from nodedevice_agent.devicemanager.effects import CallAllocate, Publish
from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.pods import Container, ContainerKind, Pod
from nodedevice_agent.devicemanager.records.allocations import AllocationKey
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.devicemanager.resources.devices import Device, accept
from nodedevice_agent.devicemanager.resources.resource_table import SETTLE_SECONDS
from nodedevice_agent.devicemanager.snapshot import is_settling, snapshot

from tests.examples import examples
from tests.unit.node_agent.devicemanager.scenario import happen, response

NAMES = ("example.com/gpu", "example.com/nic")
# of the wall clock where the other one is 0, Unix seconds
EPOCH = 1_767_614_400
DEVICES = accept(map(Device, ("d0", "d1", "d2")))


class RestartMachine(RuleBasedStateMachine):
    """shown: the number published last, by resource. before: the same at the restart, which stays for the settling time. since: of
    each allocation when it was first seen.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.manager = DeviceManager(self.now)
        self.shown: dict[str, int] = {}
        self.before: dict[str, int] = {}
        self.settles_until = 0.0
        self.endpoints: dict[int, str] = {}
        self.last_endpoint = 0
        self.saved = Checkpoint()
        self.since: dict[AllocationKey, int] = {}

    @initialize()
    def a_node_with_a_pod(self) -> None:
        for name in NAMES:
            self.a_plugin_registers(name, True)
        self.a_pod_comes()

    def happens(self, event: str, *args: Any) -> None:
        for effect in happen(self.manager, event, *args, now=self.now):
            if isinstance(effect, CallAllocate):
                dated = structs.replace(response(b"answer"), received_at=EPOCH + int(self.now))
                self.happens("allocated", effect.ticket, dated)
            elif isinstance(effect, Publish):
                self.publish(effect.resource_name)

    def publish(self, name: str) -> None:
        if is_settling(self.manager, name):
            return
        seen = snapshot(self.manager, name)
        # the operator's sum
        number = seen.allocated + seen.reserved + seen.available
        before = self.before.get(name, 0) if self.now < self.settles_until else 0
        assert number >= before, f"{name} falls from {before} to {number} while it settles"
        self.shown[name] = number

    # -- plugins and pods -------------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(NAMES), lists_at_once=st.booleans())
    def a_plugin_registers(self, name: str, lists_at_once: bool) -> None:
        self.last_endpoint += 1
        self.endpoints[self.last_endpoint] = name
        self.happens("connected", name, self.last_endpoint, PluginOptions())
        if lists_at_once:
            self.happens("listed", name, self.last_endpoint, DEVICES)

    @precondition(lambda self: self.endpoints)
    @rule(data=st.data())
    def a_plugin_lists(self, data: st.DataObject) -> None:
        endpoint = data.draw(st.sampled_from(sorted(self.endpoints)))
        self.happens("listed", self.endpoints[endpoint], endpoint, DEVICES)

    @precondition(lambda self: self.endpoints)
    @rule(data=st.data())
    def a_plugin_goes(self, data: st.DataObject) -> None:
        endpoint = data.draw(st.sampled_from(sorted(self.endpoints)))
        self.happens("table.disconnected", self.endpoints.pop(endpoint), endpoint)

    @rule(name=st.sampled_from(NAMES))
    def all_plugins_of_a_resource_go(self, name: str) -> None:
        for endpoint in [endpoint for endpoint, found in self.endpoints.items() if found == name]:
            self.happens("table.disconnected", self.endpoints.pop(endpoint), endpoint)

    @rule()
    def a_pod_comes(self) -> None:
        container = Container("main", ContainerKind.APP, {NAMES[0]: 1})
        self.happens("pod_events.seen", Pod("pod-a", "default", "pod-a", (container,)))

    @rule(seconds=st.sampled_from([1.0, SETTLE_SECONDS - 1.0, SETTLE_SECONDS, 400.0]))
    def time_passes(self, seconds: float) -> None:
        until = self.now + seconds
        while (deadline := self.manager.next_deadline()) is not None and deadline <= until:
            self.now = max(self.now, deadline)
            self.happens("tick")
        self.now = until

    # -- restarts ---------------------------------------------------------------------------------------------------

    @rule(is_lost=st.booleans())
    def the_agent_restarts(self, is_lost: bool) -> None:
        """is_lost: the checkpoint, which is not written either before the recovery from the API."""
        self.endpoints = {}
        is_recovering = is_lost or self.manager.is_recovering
        if not self.manager.is_recovering:
            self.saved = decode(encode(self.manager.checkpoint()))
        self.manager = DeviceManager(self.now, None if is_recovering else self.saved, is_recovering=is_recovering)
        if not is_recovering:
            self.settle()

    @precondition(lambda self: self.manager.is_recovering)
    @rule()
    def the_allocations_are_recovered(self) -> None:
        self.settle()
        self.happens("recovered", Checkpoint(self.saved.allocations, dict.fromkeys(self.shown, ())))

    def settle(self) -> None:
        self.before = dict(self.shown)
        self.settles_until = self.now + SETTLE_SECONDS

    # -- invariants ------------------------------------------------------------------------------------------------

    @invariant()
    def a_number_published_at_any_time_is_not_lower(self) -> None:
        """Checked without an effect, because any other event may publish the resource."""
        for name in self.manager.resources:
            self.publish(name)

    @invariant()
    def an_allocation_keeps_its_time(self) -> None:
        for allocation in self.manager.book:
            assert allocation.since == self.since.setdefault(allocation.key, allocation.since) >= EPOCH

    @invariant()
    def nothing_settles_for_longer(self) -> None:
        for name in self.manager.resources:
            assert self.manager.is_recovering or not is_settling(self.manager, name) or self.now < self.settles_until


RestartMachine.TestCase.settings = settings(max_examples=examples(200), stateful_step_count=30, deadline=None)
TestRestarts = RestartMachine.TestCase
