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
    Delivery,
)
from nodedevice_agent.lib.patient_reads import with_deadlines
from nodedevice_agent.plugins.nvml.cdi_choice import NowOnHost, fault, now_on_host
from nodedevice_agent.plugins.nvml.cdi_specs import CdiSpecs
from nodedevice_agent.plugins.nvml.devices import (
    AUTO,
    CDI,
    DEVICE_NODES,
    ENV,
    HandOver,
    allocation,
    chosen_ways,
    preferred,
)
from nodedevice_agent.plugins.nvml.driver_troubles import Trouble
from nodedevice_agent.plugins.nvml.gpu import Gpu
from nodedevice_agent.plugins.nvml.host_files import (
    capabilities,
    control_nodes,
    graphics_of,
    have_files,
    is_there,
    missing_files,
    on_host,
    with_known_numbers,
)
from nodedevice_agent.plugins.nvml.identity import OnHost
from nodedevice_agent.plugins.nvml.mig import MigInstance
from nodedevice_agent.plugins.nvml.mps import control_path, not_running, with_mps
from nodedevice_agent.plugins.nvml.node_gpus import Fleet
from nodedevice_agent.plugins.nvml.parts import (
    HeldParts,
    Listing,
    Use,
    check_request,
    gpushare_variables,
    listing,
    parents,
    preferred_parts,
)
from nodedevice_agent.plugins.nvml.reasons import GpuReason
from nodedevice_agent.plugins.nvml.settings import GPUSHARE_NAME, MpsSettings, NvmlSettings, PartsOf, SharesSettings


class HostOfGpus(Struct, frozen=True):
    """State that the sources of a node share. root: the host's file tree, without a trailing slash."""

    root: str
    specs: CdiSpecs
    delivery: Delivery

    @classmethod
    def seen_at(cls, host_root: str, settings: NvmlSettings, delivery: Delivery | None = None) -> Self:
        return cls(host_root.rstrip("/"), CdiSpecs(host_root, settings.cdi_kind), delivery or Delivery())


class NvmlSource(DeviceSource):
    """Whole GPUs and MIG instances, or parts of GPUs; the watch publishes the list."""

    prefers = True

    def __init__(self, resource_name: str, settings: NvmlSettings, host: HostOfGpus, fleet: Fleet) -> None:
        self.resource_name = resource_name
        self._settings = settings
        self._host = host
        self._host_root = host.root
        self._fleet = fleet
        self._uses: Sequence[tuple[Gpu, Use]] = ()
        # what the devices are parts of; None: they are whole
        self._parts = settings.parts_of(resource_name)
        # the GPUs of parts, and what their parts are
        self._listed: dict[str, tuple[Gpu, PartsOf]] = {}
        self.devices = DeviceList(self._parts.rules() if self._parts is not None else None)

    def publish(self, uses: Sequence[tuple[Gpu, Use]]) -> None:
        """Publish the list for these GPUs, sorted by UUID."""
        self._uses = uses
        self._listed = {gpu.uuid: (gpu, use.parts) for gpu, use in uses if use.parts is not None}
        found, trouble = with_deadlines(partial(self._found, uses))
        self.devices.publish(found.devices, trouble, found.parents)

    def _found(self, uses: Sequence[tuple[Gpu, Use]]) -> tuple[Listing, tuple[str, str]]:
        """The list, and its trouble."""
        known = self._gpus()
        uses = [(known.get(gpu.uuid, gpu), use) for gpu, use in uses]
        faults = self._faults_of(uses)
        host = self._on_host(uses, faults)
        found = listing(uses, self._fleet.trouble_of, host, self._fleet.trouble_of_instance)
        overall = self._fleet.trouble
        files, specs = self._missing_files(uses, faults), self._notes_of_specs(faults)
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
        if self._parts is not None:
            check_request(self.resource_name, device_ids, self._parts)
            held = sorted(parents(device_ids).items())
            return self._of_parts(
                [HeldParts(*self._listed[uuid], count) for uuid, count in held], device_ids, container
            )
        instances = self._fleet.instances()
        wholes = [self._fleet.gpus[device_id] for device_id in device_ids if device_id not in instances]
        held_instances = [instances[device_id] for device_id in device_ids if device_id in instances]
        return with_deadlines(partial(self._of_gpus, container, wholes, held_instances))

    def preferred(self, free: set[str], must_include: list[str], size: int) -> tuple[str, ...]:
        if self._parts is not None:
            return tuple(preferred_parts(self._parts.rules(), free, must_include, size))
        numa_nodes = {device.id: device.numa_nodes for device in self.devices.latest}
        return preferred(self._fleet.scores, numa_nodes, free, must_include, size)

    def _gpus(self) -> Mapping[str, Gpu]:
        """GPUs of the node by UUID, with the numbers of device files as far as known."""
        gpus = self._fleet.gpus
        return gpus if self._fleet.driver_trouble is None else with_known_numbers(self._host_root, gpus.values())

    def _of_gpus(
        self,
        container: ContainerIdentity | None,
        gpus: Sequence[Gpu],
        instances: Sequence[tuple[Gpu, MigInstance]] = (),
    ) -> ContainerAllocation:
        known = self._gpus()
        gpus = [known.get(gpu.uuid, gpu) for gpu in gpus]
        instances = [(known.get(gpu.uuid, gpu), instance) for gpu, instance in instances]
        settings, root = self._settings, self._host_root
        # a kubelet names no container
        delivery = replace(self._host.delivery, by_kubelet=container is None)
        files = capabilities(root) if instances else {}
        faults = self._faults(gpus, instances)
        ways = self._ways(gpus, instances, files, delivery, faults)
        if CDI in ways and faults:
            uuid, sentence = next(iter(faults.items()))
            raise AllocationRefused(self.resource_name, f"{uuid} cannot be handed over by CDI: {sentence}")
        self._check_driver(gpus, instances, ways, delivery)
        names = self._host.specs.names
        ids = [*(gpu.uuid for gpu in gpus), *(instance.uuid for _, instance in instances)]
        are_void = AUTO in settings.hand_over and all(uuid in names and names[uuid].is_void for uuid in ids)
        hand_over = HandOver(ways, settings.cdi_kind, control_nodes(root), files, are_void)
        made = allocation(self.resource_name, gpus, hand_over, instances)
        if DEVICE_NODES in ways and (missing := missing_files(root, gpus, instances, files)):
            raise AllocationRefused(self.resource_name, _missing(missing).message)
        return made

    def _check_driver(
        self,
        gpus: Sequence[Gpu],
        instances: Sequence[tuple[Gpu, MigInstance]],
        ways: Collection[str],
        delivery: Delivery,
    ) -> None:
        """Raises AllocationRefused if auto has only the variable left, because the driver is not loaded (its files are missing).

        The container would keep that response, and most runtimes ignore the variable.
        """
        trouble = self._fleet.driver_trouble
        if trouble is None or delivery.by_kubelet or AUTO not in self._settings.hand_over or {*ways} != {ENV}:
            return
        uuid = next(iter([*(gpu.uuid for gpu in gpus), *(each.uuid for _, each in instances)]))
        raise AllocationRefused(
            self.resource_name, f"how {uuid} is handed over is decided when the driver is read again: {trouble.message}"
        )

    def _faults_of(self, uses: Sequence[tuple[Gpu, Use]]) -> dict[str, str]:
        wholes = [gpu for gpu, use in uses if use.instances is None]
        return self._faults(wholes, [(gpu, each) for gpu, use in uses for each in use.instances or ()])

    def _faults(self, gpus: Sequence[Gpu], instances: Sequence[tuple[Gpu, MigInstance]]) -> dict[str, str]:
        """Why some of these cannot be handed over by CDI, by UUID."""
        specs = self._host.specs.specs
        if not self._settings.uses_cdi or not (specs.names or specs.refused or specs.problems):
            return {}
        now = self._now()
        held = [*((gpu.uuid, gpu) for gpu in gpus), *((instance.uuid, gpu) for gpu, instance in instances)]
        return {uuid: found for uuid, gpu in held if (found := fault(uuid, gpu, specs, now))}

    def _now(self) -> NowOnHost:
        gpus = [*self._gpus().values()]
        files = capabilities(self._host_root) if any(gpu.instances for gpu in gpus) else {}
        return now_on_host(gpus, files, graphics_of(self._host_root, gpus), self._fleet.driver_version)

    def _ways(
        self,
        gpus: Sequence[Gpu],
        instances: Sequence[tuple[Gpu, MigInstance]],
        files: Mapping[str, int],
        delivery: Delivery,
        faults: Collection[str],
    ) -> Collection[str]:
        """files: see mig.capability_minors(). faults: UUIDs that cannot be handed over by CDI."""
        if AUTO not in self._settings.hand_over:
            return self._settings.hand_over
        ids = [*(gpu.uuid for gpu in gpus), *(instance.uuid for _, instance in instances)]
        are_there = have_files(self._host_root, gpus, instances, files)
        return chosen_ways(ids, self._host.specs.names.keys() - faults, are_there, delivery)

    def _on_host(self, uses: Sequence[tuple[Gpu, Use]], faults: Collection[str]) -> OnHost:
        gpus = [gpu for gpu, _ in uses]
        instances = [(gpu, each) for gpu, use in uses for each in use.instances or ()]
        is_auto = AUTO in self._settings.hand_over
        found = on_host(
            self._host_root, gpus, instances, hands_over_files=is_auto or DEVICE_NODES in self._settings.hand_over
        )
        if not self._settings.uses_cdi:
            return found
        kind = self._settings.cdi_kind
        uuids = [*(gpu.uuid for gpu in gpus), *(each.uuid for _, each in instances)]
        if not is_auto:
            return replace(found, cdi_names={uuid: f"{kind}={uuid}" for uuid in uuids if uuid not in faults})
        files, delivery = found.capabilities, self._host.delivery
        ways = {gpu.uuid: self._ways([gpu], (), files, delivery, faults) for gpu in gpus}
        ways |= {each[1].uuid: self._ways((), [each], files, delivery, faults) for each in instances}
        cdi_names = {uuid: f"{kind}={uuid}" for uuid in uuids if CDI in ways[uuid]}
        return replace(found, ways={uuid: ",".join(each) for uuid, each in ways.items()}, cdi_names=cdi_names)

    def _of_parts(
        self, held: Sequence[HeldParts], device_ids: Sequence[str], container: ContainerIdentity | None
    ) -> ContainerAllocation:
        """For a container with these parts of these GPUs. Raises AllocationRefused."""
        for trouble in with_deadlines(self._node_troubles):
            raise AllocationRefused(self.resource_name, trouble.message)
        made = with_deadlines(partial(self._of_gpus, container, [each.gpu for each in held]))
        if self.resource_name == GPUSHARE_NAME:
            made = replace(made, env={**made.env, **gpushare_variables(held[0])})
        return made if self._mps is None else with_mps(self.resource_name, made, self._mps, held)

    @property
    def _mps(self) -> MpsSettings | None:
        return self._parts.mps if isinstance(self._parts, SharesSettings) else None

    def _notes(self) -> list[Trouble]:
        """Facts that may surprise an administrator, but prevent nothing."""
        return []

    def _missing_files(self, uses: Sequence[tuple[Gpu, Use]], faults: Collection[str]) -> list[Trouble]:
        """Missing files of allocatable GPUs: Allocate is refused until they exist."""
        root, delivery = self._host_root, self._host.delivery
        minors = capabilities(root) if any(use.instances for _, use in uses) else {}
        missing: set[str] = set()
        for gpu, use in uses:
            held = [(gpu, each) for each in use.instances or ()]
            wholes = [] if held else [gpu]
            ways = self._ways(wholes, held, minors, delivery, faults)
            if self._fleet.trouble_of(gpu.uuid) is None and DEVICE_NODES in ways:
                missing.update(missing_files(root, wholes, held, minors))
        return [_missing(sorted(missing))] if missing else []

    def _notes_of_specs(self, faults: Mapping[str, str]) -> list[Trouble]:
        """Why CDI is not used, each reason once; empty if the runtime accepts no CDI names."""
        is_auto = AUTO in self._settings.hand_over
        if is_auto and not self._host.delivery.takes_cdi:
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
        return [not_running(mps)] if mps and not is_there(self._host_root, control_path(mps)) else []


def _more(uuids: Sequence[str]) -> str:
    return f" (and {len(uuids) - 1} more)" if len(uuids) > 1 else ""


def _missing(paths: Sequence[str]) -> Trouble:
    message = (
        f"{' and '.join(paths)} missing on the node, which containers with GPUs are given: load the driver's modules and make the "
        "files (nvidia-modprobe -c MINOR -u, or nvidia-smi as root); it is waited for. Or set nvml.handOver to env or cdi"
    )
    return Trouble(GpuReason.DEVICE_FILE_MISSING, message)
