"""The devices of one resource name of the nvml plugin: their list, and what a container gets for them."""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Self

from msgspec import Struct
from msgspec.structs import replace

from nodedevice_agent.lib.deviceplugin_server.server import DeviceList, DeviceSource
from nodedevice_agent.lib.deviceplugin_server.values import (
    AllocationRefused,
    ContainerAllocation,
    ContainerIdentity,
    Injector,
)
from nodedevice_agent.lib.patient_reads import with_deadlines
from nodedevice_agent.plugins.nvml import host_files, parts
from nodedevice_agent.plugins.nvml.cdi_choice import fault, now_on_host
from nodedevice_agent.plugins.nvml.cdi_specs import CdiSpecs
from nodedevice_agent.plugins.nvml.devices import (
    AUTO,
    CDI,
    DEVICE_NODES,
    ENV,
    HandOver,
    Refused,
    allocation,
    chosen_ways,
    preferred,
)
from nodedevice_agent.plugins.nvml.driver_troubles import Trouble
from nodedevice_agent.plugins.nvml.gpu import Gpu, GpuDevice
from nodedevice_agent.plugins.nvml.identity import OnHost
from nodedevice_agent.plugins.nvml.mps import control_path, not_running, with_mps
from nodedevice_agent.plugins.nvml.node_gpus import Fleet
from nodedevice_agent.plugins.nvml.parts import HeldParts, Listing, Use
from nodedevice_agent.plugins.nvml.reasons import GpuReason
from nodedevice_agent.plugins.nvml.settings import GPUSHARE_NAME, MpsSettings, NvmlSettings, PartsOf, SharesSettings


class HostOfGpus(Struct, frozen=True):
    """State that the sources of a node share. root: the host's file tree, without a trailing slash."""

    root: str
    specs: CdiSpecs
    injector: Injector

    @classmethod
    def seen_at(cls, host_root: str, settings: NvmlSettings, injector: Injector | None = None) -> Self:
        return cls(host_root.rstrip("/"), CdiSpecs(host_root, settings.cdi_kind), injector or Injector())


class NvmlSource(DeviceSource):
    """Whole GPUs and MIG instances, or parts of GPUs; the watch publishes the list."""

    prefers = True

    def __init__(self, resource_name: str, settings: NvmlSettings, host: HostOfGpus, fleet: Fleet) -> None:
        self.resource_name = resource_name
        self._settings = settings
        self._host = host
        self._fleet = fleet
        self._uses: Sequence[tuple[Gpu, Use]] = ()
        # what the devices are parts of; None: they are whole
        self._parts = settings.parts_of(resource_name)
        # the GPUs of parts, and what their parts are
        self._listed: dict[str, tuple[Gpu, PartsOf]] = {}
        self.devices = DeviceList(self._parts.rules() if self._parts is not None else None)

    def publish(self, uses: Sequence[tuple[Gpu, Use]]) -> None:
        self._uses = uses
        self._listed = {gpu.uuid: (gpu, use.parts) for gpu, use in uses if use.parts is not None}
        found, trouble = with_deadlines(partial(self._found, uses))
        self.devices.publish(found.devices, trouble, found.parents)

    def _found(self, uses: Sequence[tuple[Gpu, Use]]) -> tuple[Listing, tuple[str, str]]:
        known, minors = self._gpus(), self._minors()
        uses = [(known.get(gpu.uuid, gpu), use) for gpu, use in uses]
        devices = [device for gpu, use in uses for device in use.devices(gpu)]
        faults = self._faults(devices, minors)
        ways = {device.uuid: self._ways([device], minors, self._host.injector, faults) for device in devices}
        host = self._on_host(devices, minors, ways, faults)
        found = parts.listing(uses, self._fleet.trouble_of, host, self._fleet.trouble_of_instance)
        overall = self._fleet.trouble
        files, specs = self._missing_files(devices, minors, ways), self._notes_of_specs(faults)
        notes = [*found.troubles, *files, *self._node_troubles(), *specs, *self._notes(), *self._notes_of_gpus(uses)]
        if overall is not None:
            # kubectl nodedevice reads the reason from the message of the condition Healthy
            return found, (overall.reason, f"{overall.message} ({overall.reason})")
        reason = notes[0].reason if notes else ""
        return found, (reason, "; ".join(each.message for each in notes))

    async def read_files(self) -> None:
        if self._settings.uses_cdi and await self._host.specs.refresh():
            self.publish(self._uses)

    def allocate(self, device_ids: list[str], container: ContainerIdentity | None) -> ContainerAllocation:
        """Raises AllocationRefused. Unhealthy GPUs are allocated too: the device manager decides which ones to request."""
        try:
            return self._allocation(device_ids, container)
        except Refused as refused:
            raise AllocationRefused(self.resource_name, str(refused)) from refused

    def _allocation(self, device_ids: list[str], container: ContainerIdentity | None) -> ContainerAllocation:
        if self._parts is not None:
            parts.check_request(device_ids, self._parts)
            held = sorted(parts.parents(device_ids).items())
            return self._of_parts(
                [HeldParts(*self._listed[uuid], count) for uuid, count in held], device_ids, container
            )
        devices = self._fleet.devices()
        return with_deadlines(partial(self._of_devices, container, [devices[device_id] for device_id in device_ids]))

    def preferred(self, free: set[str], must_include: list[str], size: int) -> tuple[str, ...]:
        if self._parts is not None:
            return tuple(parts.preferred_parts(self._parts.rules(), free, must_include, size))
        numa_nodes = {device.id: device.numa_nodes for device in self.devices.latest}
        return preferred(self._fleet.scores, numa_nodes, free, must_include, size)

    def _gpus(self) -> Mapping[str, Gpu]:
        """GPUs of the node by UUID, with the numbers of device files as far as known."""
        gpus = self._fleet.gpus
        if self._fleet.driver_trouble is None:
            return gpus
        return host_files.with_known_numbers(self._host.root, gpus.values())

    def _minors(self) -> Mapping[str, int]:
        """Of capabilities, if the node has MIG instances; see mig.capability_minors()."""
        has_instances = any(gpu.instances for gpu in self._fleet.gpus.values())
        return host_files.capabilities(self._host.root) if has_instances else {}

    def _of_devices(self, container: ContainerIdentity | None, devices: Sequence[GpuDevice]) -> ContainerAllocation:
        known, minors = self._gpus(), self._minors()
        devices = [replace(device, gpu=known.get(device.gpu.uuid, device.gpu)) for device in devices]
        settings, root = self._settings, self._host.root
        # a kubelet names no container
        injector = replace(self._host.injector, is_kubelet=container is None)
        faults = self._faults(devices, minors)
        ways = self._ways(devices, minors, injector, faults)
        if CDI in ways and faults:
            uuid, sentence = next(iter(faults.items()))
            raise Refused(f"{uuid} cannot be handed over by CDI: {sentence}")
        self._check_driver(devices, ways, injector)
        names = self._host.specs.specs.names
        are_void = AUTO in settings.hand_over and all(
            device.uuid in names and names[device.uuid].is_void for device in devices
        )
        hand_over = HandOver(ways, settings.cdi_kind, host_files.control_nodes(root), minors, are_void)
        made = allocation(devices, hand_over)
        if DEVICE_NODES in ways and (missing := host_files.missing_files(root, devices, minors)):
            raise Refused(_missing(missing).message)
        return made

    def _check_driver(self, devices: Sequence[GpuDevice], ways: Collection[str], injector: Injector) -> None:
        """Raises Refused if auto has only the variable left because the driver is not loaded: most runtimes would ignore it."""
        trouble = self._fleet.driver_trouble
        if trouble is None or injector.is_kubelet or AUTO not in self._settings.hand_over or {*ways} != {ENV}:
            return
        raise Refused(
            f"how {devices[0].uuid} is handed over is decided when the driver is read again: {trouble.message}"
        )

    def _faults(self, devices: Sequence[GpuDevice], minors: Mapping[str, int]) -> dict[str, str]:
        specs = self._host.specs.specs
        if not self._settings.uses_cdi or not (specs.names or specs.refused or specs.problems):
            return {}
        gpus = self._gpus().values()
        now = now_on_host(gpus, minors, host_files.graphics_of(self._host.root, gpus), self._fleet.driver_version)
        return {device.uuid: found for device in devices if (found := fault(device, specs, now))}

    def _ways(
        self, devices: Sequence[GpuDevice], minors: Mapping[str, int], injector: Injector, faults: Collection[str]
    ) -> Collection[str]:
        """How a container gets all of these. faults: UUIDs that cannot be handed over by CDI."""
        if AUTO not in self._settings.hand_over:
            return self._settings.hand_over
        are_there = host_files.have_files(self._host.root, devices, minors)
        ids = [device.uuid for device in devices]
        return chosen_ways(ids, self._host.specs.specs.names.keys() - faults, are_there, injector)

    def _on_host(
        self,
        devices: Sequence[GpuDevice],
        minors: Mapping[str, int],
        ways: Mapping[str, Collection[str]],
        faults: Collection[str],
    ) -> OnHost:
        is_auto, kind = AUTO in self._settings.hand_over, self._settings.cdi_kind
        by_cdi = [uuid for uuid, way in ways.items() if CDI in way and uuid not in faults]
        hands_over_files = is_auto or DEVICE_NODES in self._settings.hand_over
        return replace(
            host_files.on_host(self._host.root, devices, minors, hands_over_files=hands_over_files),
            ways={uuid: ",".join(way) for uuid, way in ways.items()} if is_auto else {},
            cdi_names={uuid: f"{kind}={uuid}" for uuid in by_cdi},
        )

    def _of_parts(
        self, held: Sequence[HeldParts], device_ids: Sequence[str], container: ContainerIdentity | None
    ) -> ContainerAllocation:
        """For a container with these parts of these GPUs. Raises Refused."""
        for trouble in with_deadlines(self._node_troubles):
            raise Refused(trouble.message)
        made = with_deadlines(partial(self._of_devices, container, [GpuDevice(each.gpu) for each in held]))
        if self.resource_name == GPUSHARE_NAME:
            made = replace(made, env={**made.env, **parts.gpushare_variables(held[0])})
        return made if self._mps is None else with_mps(made, self._mps, held)

    @property
    def _mps(self) -> MpsSettings | None:
        return self._parts.mps if isinstance(self._parts, SharesSettings) else None

    def _notes(self) -> list[Trouble]:
        """Facts that may surprise an administrator, but prevent nothing."""
        return []

    def _missing_files(
        self, devices: Sequence[GpuDevice], minors: Mapping[str, int], ways: Mapping[str, Collection[str]]
    ) -> list[Trouble]:
        """Missing files of allocatable GPUs: Allocate is refused until they exist."""
        needed = [
            device
            for device in devices
            if DEVICE_NODES in ways[device.uuid] and self._fleet.trouble_of(device.gpu.uuid) is None
        ]
        missing = host_files.missing_files(self._host.root, needed, minors) if needed else []
        return [_missing(missing)] if missing else []

    def _notes_of_specs(self, faults: Mapping[str, str]) -> list[Trouble]:
        """Why CDI is not used, each reason once; empty if the runtime accepts no CDI names."""
        is_auto = AUTO in self._settings.hand_over
        if is_auto and not self._host.injector.takes_cdi:
            return []
        effect = "is not handed over by CDI" if is_auto else "is not allocated"
        uuids: dict[str, list[str]] = {}
        for uuid, sentence in faults.items():
            uuids.setdefault(sentence, []).append(uuid)
        return [
            Trouble(GpuReason.CDI_SPEC_NOT_USABLE, f"{each[0]}{_more(each)} {effect}: {sentence}")
            for sentence, each in uuids.items()
        ]

    def _notes_of_gpus(self, uses: Sequence[tuple[Gpu, Use]]) -> list[Trouble]:
        """The driver's reports about GPUs that are still offered."""
        return [
            Trouble(note.reason, f"GPU {gpu.uuid}: {note.message} ({note.reason})")
            for gpu, _ in uses
            for note in self._fleet.notes_of(gpu.uuid)
        ]

    def _node_troubles(self) -> list[Trouble]:
        """Troubles of the node apart from its GPUs: a daemon may come and go at any time."""
        mps = self._mps
        return [not_running(mps)] if mps and not host_files.is_there(self._host.root, control_path(mps)) else []


def _more(uuids: Sequence[str]) -> str:
    return f" (and {len(uuids) - 1} more)" if len(uuids) > 1 else ""


def _missing(paths: Sequence[str]) -> Trouble:
    message = (
        f"{' and '.join(paths)} missing on the node, which containers with GPUs are given: load the driver's modules and make the "
        "files (nvidia-modprobe -c MINOR -u, or nvidia-smi as root); it is waited for. Or set nvml.handOver to env or cdi"
    )
    return Trouble(GpuReason.DEVICE_FILE_MISSING, message)
