"""All GPUs of a node and their health: the state of the nvml plugin.

A GPU that was listed once stays listed, as unhealthy, when the driver no longer lists it: a GPU that fell off the bus must stay
visible. It is forgotten when another UUID appears at its bus ID, or when an administrator clears it. Its number (/dev/nvidiaN)
is forgotten when another GPU has that one: a driver that is loaded again numbers the GPUs that it finds then.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Self

from msgspec import Struct, field
from msgspec.structs import replace

from nodedevice_agent.plugins.nvml import health as rules
from nodedevice_agent.plugins.nvml.driver_troubles import NO_RECOVERY, Reading, Trouble
from nodedevice_agent.plugins.nvml.gpu import Gpu, GpuDevice, Pair, scores
from nodedevice_agent.plugins.nvml.health import GpuHealth, HealthRules, InstanceMark, Place, RecentXid
from nodedevice_agent.plugins.nvml.mig import MigInstance
from nodedevice_agent.plugins.nvml.reader.messages import Found
from nodedevice_agent.plugins.nvml.reasons import GpuReason

# fields of GpuHealth
_KEPT: Final = ("mark", "is_away", "marked_at", "recent", "excused", "instance_marks")


class Change(Struct, frozen=True):
    """A change of one GPU, for the log. trouble: None when it is healthy again. how: what showed that."""

    uuid: str
    trouble: Trouble | None
    how: str = ""


class Remembered(Struct, frozen=True):
    """What survives a restart of the agent within one boot. ecc_uncorrected: as last read, to notice errors while no agent ran."""

    gpu: Gpu
    mark: Trouble | None = None
    is_away: bool = False
    marked_at: Reading = field(default_factory=Reading)
    ecc_uncorrected: int | None = None
    recent: tuple[RecentXid, ...] = ()
    excused: int = NO_RECOVERY
    instance_marks: tuple[InstanceMark, ...] = ()

    @classmethod
    def of(cls, gpu: Gpu, health: GpuHealth) -> Self:
        return cls(gpu, ecc_uncorrected=health.read.ecc_uncorrected, **{name: getattr(health, name) for name in _KEPT})

    @property
    def health(self) -> GpuHealth:
        action = self.excused or self.marked_at.recovery_action
        return GpuHealth(
            passing=rules.GONE if self.is_away else None,
            read=replace(self.marked_at, ecc_uncorrected=self.ecc_uncorrected, recovery_action=action),
            **{name: getattr(self, name) for name in _KEPT},
        )


class Fleet:
    """Mutable state; each event returns the changes that it caused."""

    def __init__(self, health_rules: HealthRules, remembered: Iterable[Remembered] = ()) -> None:
        self._rules = health_rules
        self.gpus: dict[str, Gpu] = {}
        self._health: dict[str, GpuHealth] = {}
        # why the driver cannot be read
        self.driver_trouble: Trouble | None = None
        self.unnamed: tuple[str, ...] = ()
        self.is_partial = False
        self.driver_version = ""
        self.scores: Mapping[Pair, int] = {}
        for known in remembered:
            self.gpus[known.gpu.uuid] = known.gpu
            self._health[known.gpu.uuid] = known.health

    # -- events ----------------------------------------------------------------------------------------------------------

    def found(self, inventory: Found) -> list[Change]:
        """The reader has started and reported its inventory."""
        changes = []
        found = {gpu.uuid: gpu.completed(self.gpus.get(gpu.uuid, gpu)) for gpu in inventory.gpus}
        places = {gpu.pci_bus_id for gpu in found.values() if gpu.pci_bus_id}
        for uuid in [uuid for uuid in self.gpus if uuid not in found]:
            if self.gpus[uuid].pci_bus_id in places:
                changes.append(Change(uuid, None, "another UUID has its bus ID"))
                self._forget(uuid)
        changes += self._miss([uuid for uuid in self.gpus if uuid not in found], inventory)
        for uuid, gpu in found.items():
            self.gpus[uuid] = gpu
            self._health.setdefault(uuid, GpuHealth())
        self._forget_minors({gpu.uuid: gpu.minor for gpu in inventory.gpus if gpu.minor is not None})
        ancestors = {(one, other): level for one, other, level in inventory.ancestors}
        self.scores = scores(found.values(), inventory.ports, ancestors)
        self.is_partial = inventory.is_partial
        self.driver_version = inventory.driver_version
        return changes

    def described(self, gpus: Iterable[Gpu]) -> list[tuple[Gpu, Gpu]]:
        """The GPUs with their MIG instances, and with features that they lack. Returns the changed ones, before and after."""
        changed = []
        for gpu in gpus:
            uuid, before = gpu.uuid, self.gpus.get(gpu.uuid)
            if before is None:
                continue
            self.gpus[uuid] = replace(before, instances=gpu.instances, not_supported=gpu.not_supported)
            self._health[uuid] = rules.with_instances(self._health[uuid], gpu.instances or ())
            if self.gpus[uuid] != before:
                changed.append((before, self.gpus[uuid]))
        return changed

    def read(self, readings: Mapping[str, Reading]) -> list[Change]:
        """GPUs were read. An unknown GPU waits for the next inventory."""
        changes = []
        for uuid, reading in readings.items():
            if uuid in self._health:
                health, how = rules.with_reading(self._health[uuid], reading, self._rules)
                changes += self._set(uuid, health, how)
        return changes

    def xid(self, uuid: str, xid: int, place: Place | None = None) -> list[Change]:
        """The driver reported an Xid. uuid: "" if it named no GPU. place: the MIG instance that it named; ignored without MIG."""
        if uuid not in self._health:
            return []
        own = place if self.gpus[uuid].instances is not None else None
        return self._set(uuid, rules.with_xid(self._health[uuid], xid, self._rules, own))

    def ecc(self, uuid: str) -> list[Change]:
        if uuid not in self._health:
            return []
        return self._set(uuid, rules.with_ecc_event(self._health[uuid], self._rules))

    def unread(self, trouble: Trouble | None) -> bool:
        """The driver cannot be read because of this; None: it is read again. Returns whether that changed."""
        before, self.driver_trouble = self.driver_trouble, trouble
        return trouble != before

    def cleared(self, uuid: str) -> list[Change]:
        """An administrator marked this GPU as healthy, or as removed for good."""
        health = self._health.get(uuid)
        if health is None:
            return []
        if health.passing == rules.GONE:
            self._forget(uuid)
            return [Change(uuid, None, "an administrator removed it")]
        return self._set(uuid, rules.cleared(health), "an administrator cleared it")

    # -- state ---------------------------------------------------------------------------------------------------------

    @property
    def trouble(self) -> Trouble | None:
        """The trouble of the node's GPUs as a whole: the driver cannot be read, or a GPU cannot be identified."""
        if self.driver_trouble is not None or not self.unnamed:
            return self.driver_trouble
        return Trouble(GpuReason.GPU_UNREADABLE, "; ".join(self.unnamed))

    @property
    def is_whole(self) -> bool:
        """Whether every GPU ever seen can be reached; if not, a rescan may help."""
        return not self.unnamed and not any(health.is_unreachable for health in self._health.values())

    def trouble_of(self, uuid: str) -> Trouble | None:
        """Why this GPU is unhealthy. A mark explains more than an unreadable driver."""
        health = self._health[uuid]
        return health.mark or health.suspicion or self.driver_trouble or health.passing

    def trouble_of_instance(self, uuid: str, instance: MigInstance) -> Trouble | None:
        """Why this MIG instance of a GPU is unhealthy, besides what its GPU has."""
        return self._health[uuid].trouble_of_instance(instance)

    def notes_of(self, uuid: str) -> tuple[Trouble, ...]:
        """Troubles of a GPU that is offered nevertheless."""
        return () if self.trouble_of(uuid) else self._health[uuid].notes

    def energy_seconds(self) -> dict[str, float]:
        """The interval for reading the energy counter of each GPU, by UUID; GPUs that are not in it are not read."""
        wanted = {uuid: its.energy_seconds(self.gpus[uuid].not_supported) for uuid, its in self._health.items()}
        return {uuid: seconds for uuid, seconds in sorted(wanted.items()) if seconds is not None}

    def devices(self) -> dict[str, GpuDevice]:
        """All GPUs and MIG instances by UUID."""
        every = (GpuDevice(gpu, one) for gpu in self.gpus.values() for one in (None, *(gpu.instances or ())))
        return {device.uuid: device for device in every}

    def remembered(self) -> tuple[Remembered, ...]:
        """Sorted, so that equal state gives an equal file."""
        return tuple(Remembered.of(self.gpus[uuid], health) for uuid, health in sorted(self._health.items()))

    def _miss(self, missing: list[str], inventory: Found) -> list[Change]:
        """Known GPUs that were not found: assign the lost ones first, beginning with GPUs already known as lost."""
        changes = []
        lost = inventory.lost
        for uuid in sorted(missing, key=lambda uuid: self._health[uuid].passing != rules.LOST):
            health = self._health[uuid]
            if lost:
                lost -= 1
                changes += self._set(uuid, rules.away(health, rules.LOST))
            else:
                # an unidentified GPU may be this one: then it is not gone, and its return does not prove a reset
                changes += self._set(
                    uuid, rules.silent(health) if inventory.unnamed else rules.away(health, rules.GONE)
                )
        self.unnamed = (*inventory.unnamed, *["a lost GPU was never identified"] * lost)
        return changes

    def _forget_minors(self, reported: Mapping[str, int]) -> None:
        """Drop numbers that the driver now reports for another GPU."""
        for uuid, gpu in self.gpus.items():
            if any(minor == gpu.minor for other, minor in reported.items() if other != uuid):
                self.gpus[uuid] = replace(gpu, minor=None)

    def _set(self, uuid: str, health: GpuHealth, how: str = "") -> list[Change]:
        """Changes of the GPU itself, and of each of its MIG instances that has something of its own."""
        before, self._health[uuid] = self._health[uuid], health
        changes = [Change(uuid, health.trouble, how)] if health.trouble != before.trouble else []
        for one in self.gpus[uuid].instances or ():
            trouble = health.trouble_of_instance(one)
            if trouble != before.trouble_of_instance(one):
                changes.append(Change(one.uuid, trouble, how))
        return changes

    def _forget(self, uuid: str) -> None:
        del self.gpus[uuid], self._health[uuid]
