"""A device manager and its events, one event a line, with a clock that only the test moves.

Answers of plugins are events too: the test gives them, in the order it wants, or lets `answer_all` give the usual ones.
"""

from collections.abc import Iterable, Mapping
from inspect import signature
from operator import attrgetter
from typing import Any, Self

from msgspec import structs, to_builtins
from nodedevice_agent.devicemanager.container_edits import AllocateResponse, ContainerEdits, ContainerMount, DeviceFile
from nodedevice_agent.devicemanager.effects import CallAllocate, CallPreferred, Effect, Publish, SaveCheckpoint
from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.pods import Pod
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.devicemanager.records.cordons import Cordon
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.devicemanager.resources.devices import Device, ListedDevices, accept
from nodedevice_agent.devicemanager.snapshot import Snapshot, snapshot
from nodedevice_agent.kube.observed import observed_status
from nodedevice_agent.kube.status import node_device_status
from nodedevice_api.parts import PartRules, Placement, part_id

from tests.unit.node_agent.devicemanager.pods import GPU as GPU
from tests.unit.node_agent.devicemanager.pods import NIC as NIC
from tests.unit.node_agent.devicemanager.pods import app as app
from tests.unit.node_agent.devicemanager.pods import container as container
from tests.unit.node_agent.devicemanager.pods import init as init
from tests.unit.node_agent.devicemanager.pods import pod as pod
from tests.unit.node_agent.devicemanager.pods import sidecar as sidecar

# so many, or these, or a whole list; plain IDs are healthy devices without NUMA nodes
Devices = int | Iterable[str | Device] | ListedDevices
SAME = PartRules(Placement.SAME_PARENT)
# health of a device
SICK, WELL = False, True
WITH_PREFERENCES = PluginOptions(get_preferred_allocation_available=True)
# how the API says that a pod is over
ENDS = ("gone", "over", "not in the list")


def response(octets: bytes) -> AllocateResponse:
    """The responses of these plugins are words: an environment variable ANSWER of that value, and /dev/<word>.

    "mount PATH" is a mount there instead, "env WORD" the variable alone.
    """
    word = octets.decode("latin-1")
    if word.startswith("env "):
        edits = ContainerEdits({"ANSWER": word.removeprefix("env ")})
    elif word.startswith("mount "):
        edits = ContainerEdits(mounts=(ContainerMount(word.removeprefix("mount "), "/srv", False),))
    else:
        edits = ContainerEdits({"ANSWER": word}, devices=(DeviceFile(f"/dev/{word}", "/dev/null", "rw"),))
    return AllocateResponse(octets, edits)


def with_edits(checkpoint: Checkpoint) -> Checkpoint:
    """A checkpoint as the agent reads it: every response decoded."""
    allocations = checkpoint.allocations
    return structs.replace(
        checkpoint,
        allocations=tuple(
            structs.replace(a, edits=response(a.response).edits) if a.response else a for a in allocations
        ),
    )


def parts(rules: PartRules | None = None, /, **sizes: int) -> ListedDevices:
    """A list of parts, so many of each physical device."""
    found = (Device(part_id(parent, n, "-"), parent=parent) for parent, size in sizes.items() for n in range(size))
    return accept(found, part_rules=rules or SAME)


def device_ids(count: int) -> list[str]:
    return [f"d{index}" for index in range(count)]


def ids(digits: str) -> tuple[str, ...]:
    return tuple(f"d{digit}" for digit in digits)


def happen(manager: DeviceManager, event: str, *args: Any, now: float) -> list[Effect]:
    """An event of the manager, or of a part of it, by its name, settled."""
    handle = attrgetter(event)(manager)
    handle(*args, *([now] if "now" in signature(handle).parameters else []))
    return manager.settle(now)


class Scenario:
    """A device manager with a clock. Every event returns its effects, and `effects` has all of them."""

    def __init__(self, checkpoint: Checkpoint | None = None, **options: Any) -> None:
        self.now = 1000.0
        # Unix seconds, with which plugins' responses are dated; 0 where that is not known
        self.wall_clock = 0
        self.manager = DeviceManager(self.now, checkpoint, **options)
        self.effects: list[Effect] = []

    @classmethod
    def with_plugin(
        cls, devices: Devices, nics: Devices = (), options: PluginOptions | None = None, **more: Any
    ) -> Self:
        """With a plugin of GPUs, and one of network cards if there are any. more: for the manager."""
        scenario = cls(**more)
        scenario.plugin(devices, options=options)
        if nics != ():
            scenario.plugin(nics, NIC, 2)
        return scenario

    def cordon(self, name: str, device_ids: Iterable[str], uid: str = "object") -> list[Effect]:
        """These are the administrator's cordons in the object of that UID, all of them."""
        return self.happens("table.cordoned", name, uid, dict.fromkeys(device_ids, Cordon()))

    def happens(self, event: str, *args: Any) -> list[Effect]:
        """Any event of the manager by its name, now."""
        effects = happen(self.manager, event, *args, now=self.now)
        self.effects += effects
        return effects

    def connect(self, name: str = GPU, endpoint: int = 1, options: PluginOptions | None = None) -> list[Effect]:
        return self.happens("connected", name, endpoint, options or PluginOptions())

    def lists(self, devices: Devices, name: str = GPU, endpoint: int = 1) -> list[Effect]:
        if not isinstance(devices, ListedDevices):
            each = device_ids(devices) if isinstance(devices, int) else devices
            devices = accept(d if isinstance(d, Device) else Device(d) for d in each)
        return self.happens("listed", name, endpoint, devices)

    def plugin(
        self, devices: Devices, name: str = GPU, endpoint: int = 1, options: PluginOptions | None = None
    ) -> list[Effect]:
        return self.connect(name, endpoint, options) + self.lists(devices, name, endpoint)

    def disconnect(self, name: str = GPU, endpoint: int = 1) -> list[Effect]:
        return self.happens("table.disconnected", name, endpoint)

    def see(self, *pods: Pod) -> list[Effect]:
        return [effect for seen in pods for effect in self.happens("pod_events.seen", seen)]

    def run(self, *pods: Pod) -> Self:
        """These pods arrive, and every plugin call succeeds."""
        self.answer_all(self.see(*pods))
        return self

    def gone(self, uid: str) -> list[Effect]:
        return self.happens("pod_events.gone", uid)

    def ends(self, pod: Pod, how: str, *others: Pod) -> list[Effect]:
        """One of ENDS; others: the pods that the API still has."""
        match how:
            case "gone":
                return self.gone(pod.uid)
            case "over":
                return self.see(structs.replace(pod, has_ended=True))
            case _:
                return self.happens("pod_events.synced", [*others])

    def passes(self, seconds: float) -> list[Effect]:
        """Time passes; tick() is called at the deadlines of the manager alone."""
        until = self.now + seconds
        effects: list[Effect] = []
        while (deadline := self.manager.next_deadline()) is not None and deadline <= until:
            assert deadline >= self.now or effects == [], f"the deadline {deadline} has passed and is returned again"
            self.now = max(self.now, deadline)
            effects += self.happens("tick")
            later = self.manager.next_deadline()
            assert later is None or later > self.now, "a passed deadline remains: tick() would be called for ever"
        self.now = until
        return effects

    def answer(self, call: CallAllocate, octets: bytes = b"ok") -> list[Effect]:
        dated = structs.replace(response(octets), received_at=self.wall_clock)
        return self.happens("allocated", call.ticket, dated)

    def fail(self, call: CallAllocate, message: str = "the plugin failed") -> list[Effect]:
        return self.happens("allocate_failed", call.ticket, message)

    def prefer(self, call: CallPreferred, *device_ids: str) -> list[Effect]:
        return self.happens("preferred", call.ticket, device_ids)

    def answer_all(self, effects: Iterable[Effect]) -> None:
        """Every call in these effects, and every call that follows, succeeds; GetPreferredAllocation returns nothing."""
        todo = list(effects)
        while todo:
            effect = todo.pop(0)
            if isinstance(effect, CallPreferred):
                todo += self.prefer(effect)
            elif isinstance(effect, CallAllocate):
                todo += self.answer(effect)

    # -- reads -----------------------------------------------------------------------------------------------------

    def forgets(self, name: str) -> bool:
        self.manager.forget(name)
        return name not in self.manager.resources

    def snapshot(self, name: str = GPU) -> Snapshot:
        return snapshot(self.manager, name)

    def held(self, name: str = GPU) -> dict[str, tuple[str, ...]]:
        return {f"{a.pod_uid}/{a.container}": a.device_ids for a in self.manager.book.of_resource(name)}

    def registered(self, name: str = GPU) -> dict[str, Any]:
        """The condition that says whether a plugin serves it."""
        shown = status(self, {}, "2026-01-05T00:00:00Z", name=name)
        (found,) = (condition for condition in shown["conditions"] if condition["type"] == "Registered")
        return dict(found)

    def reasons(self, name: str = GPU) -> dict[str, str]:
        return {w.pod_uid: w.reason for w in self.manager.pending(name)}

    def restarted(self, **options: Any) -> "Scenario":
        return Scenario(self.manager.checkpoint(), **options)


def calls(effects: Iterable[Effect]) -> list[CallAllocate]:
    return [effect for effect in effects if isinstance(effect, CallAllocate)]


def with_call(count: int = 2) -> tuple[Scenario, CallAllocate]:
    """A pod `p` arrives at so many devices; the call that is made for it."""
    scenario = Scenario.with_plugin(count)
    (call,) = calls(scenario.see(pod("p", gpu=1)))
    return scenario, call


def preferred_calls(effects: Iterable[Effect]) -> list[CallPreferred]:
    return [effect for effect in effects if isinstance(effect, CallPreferred)]


def published(effects: Iterable[Effect]) -> set[str]:
    return {effect.resource_name for effect in effects if isinstance(effect, Publish)}


def is_saved(effects: Iterable[Effect], *, durable: bool) -> bool:
    return any(isinstance(effect, SaveCheckpoint) and effect.durable == durable for effect in effects)


def held_by(
    uid: str, *ids: str, name: str = GPU, container: str = "main", response: bytes | None = b"ok"
) -> Allocation:
    """An allocation without NUMA nodes; its response has not been decoded."""
    numa: Mapping[int, tuple[str, ...]] = {-1: tuple(sorted(ids))}
    return Allocation(uid, container, name, numa, response)


def status(
    scenario: Scenario, before: dict[str, Any], wall_time: str, *, name: str = GPU, **more: Any
) -> dict[str, Any]:
    """The status that would be written now, after `before`."""
    return status_of(scenario.snapshot(name), before, wall_time, **more)


def status_of(now: Snapshot, before: dict[str, Any], wall_time: str, **more: Any) -> dict[str, Any]:
    options = {"version": "1.2.3", "delivery": "none", **more}
    shown: dict[str, Any] = to_builtins(
        node_device_status(now, observed_status(before), wall_time=wall_time, **options)
    )
    return shown
