"""What a container's own environment may say of GPUs, on a node whose agent serves them: what it was given, no more. Pure.

A container with GPUs of the nvml plugin has the variables of its table as the plugin answered them. One without a GPU gets none of
NVIDIA's container runtime either, whose word for that is void: images of CUDA ask for all GPUs. The runtime shows a container's
whole environment, its image's included, so nothing rests on what the API shows of the pod; init, ephemeral and privileged
containers, and those of static pods, are containers like others.
"""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from nodedevice_agent.devicemanager.allocation.allocations import Allocation
from nodedevice_agent.devicemanager.allocation.container_edits import ContainerEdits, normalized
from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.resources.resource import Resource
from nodedevice_agent.devicemanager.runtime import RunningContainer, Sandbox
from nodedevice_agent.plugins.nvml.environment import (
    Answer,
    Overruling,
    for_foreign_holder,
    for_other,
    joined,
    named_by_annotations,
    names_by_mount,
    names_gpus,
    variables,
)
from nodedevice_agent.plugins.settings import GPU_SCOPE

_BUS_ID = "pciBusID"
_SHOWN = 128
NO_EDITS = ContainerEdits()


class GpuEnvironment:
    """For the containers of one node."""

    def __init__(self, manager: DeviceManager) -> None:
        self._manager = manager
        # None: the node's configuration has no nvml plugin
        self._exempt: tuple[str, ...] | None = None

    def configured(self, exempt: Iterable[str] | None) -> None:
        """exempt: namespaces, and namespace/pod, by shell pattern, whose containers keep their own; None without the plugin."""
        self._exempt = tuple(exempt) if exempt is not None else None

    @property
    def is_on(self) -> bool:
        """Whether containers without a GPU get none."""
        return self._exempt is not None

    def serves(self, resource_name: str) -> bool:
        """Whether the nvml plugin does, by whatever name: known from the sockets of this process, or from its checkpoint."""
        resource = self._manager.resources.get(resource_name)
        return resource is not None and resource.scope == GPU_SCOPE

    def is_gpu(self, allocation: Allocation) -> bool:
        return self.serves(allocation.resource_name)

    def holds(self, pod_uid: str, container: str) -> bool:
        """Whether a container has GPUs of ours."""
        return any(map(self.is_gpu, self._manager.book.of_container(pod_uid, container)))

    def answered(self, allocations: Sequence[Allocation]) -> dict[str, str]:
        """The variables of the table for a container with all of these; their plugin has listed. Raises CannotJoin."""
        answers = []
        order = sorted({gpu for a in allocations for gpu in self._gpus(a)}) if len(allocations) > 1 else []
        for a in allocations:
            places = tuple(order.index(gpu) for gpu in sorted(self._gpus(a))) if order else ()
            answers.append(Answer(a.resource_name, a.edits.envs if a.edits is not None else {}, places))
        return joined(sorted(answers, key=lambda answer: answer.resource_name))

    def withheld(
        self,
        sandbox: Sandbox,
        container: RunningContainer,
        given: ContainerEdits = NO_EDITS,
        of_kubelet: ContainerEdits = NO_EDITS,
    ) -> Overruling | None:
        """What a container without a GPU of ours gets in place of its own variables; None where they ask for nothing.

        given: what it gets of plugins, with the GPUs of others. of_kubelet: what it has of the kubelet's plugins.
        """
        if self._exempt is None or self.holds(sandbox.uid, container.name):
            return None
        own = variables(container.env)
        if names_gpus({**of_kubelet.envs, **given.envs}, _cdi_devices(container, given, of_kubelet)):
            return for_foreign_holder(own, given.envs, of_kubelet.envs)
        return for_other(own)

    def unallocated(
        self,
        sandbox: Sandbox,
        container: RunningContainer,
        given: ContainerEdits = NO_EDITS,
        of_kubelet: ContainerEdits = NO_EDITS,
    ) -> str:
        """The annotation or mount, in words, by which NVIDIA's runtime would add a device that the container was not allocated."""
        if self._exempt is None:
            return ""
        allocated = _cdi_devices(container, given, of_kubelet)
        for key, device in named_by_annotations(container.name, sandbox.annotations, container.annotations):
            if device not in allocated:
                return f"annotation {key}, which names {device[:_SHOWN]!a}"
        mounted = {normalized(mount.container_path) for mount in (*given.mounts, *of_kubelet.mounts)}
        paths = (path for path in container.null_mounts if path not in mounted and names_by_mount(path))
        return next((f"mount {path[:_SHOWN]!a}, which names a device" for path in paths), "")

    def overrules(self, sandbox: Sandbox, edits: ContainerEdits) -> bool:
        """Whether a container has these GPUs of another plugin and no others, whatever its own variables say."""
        is_on = self._exempt is not None and not self.is_exempt(sandbox)
        return is_on and names_gpus(edits.envs, edits.cdi_devices)

    def is_exempt(self, sandbox: Sandbox) -> bool:
        pod = f"{sandbox.namespace}/{sandbox.name}"
        return any(fnmatchcase(pod if "/" in pattern else sandbox.namespace, pattern) for pattern in self._exempt or ())

    def _gpus(self, allocation: Allocation) -> set[tuple[str, str]]:
        """PCI bus ID and UUID of each."""
        resource = self._manager.resources[allocation.resource_name]
        return {(_bus_id(resource, device_id), resource.parent_of(device_id)) for device_id in allocation.device_ids}


def _bus_id(resource: Resource, device_id: str) -> str:
    """As listed now; empty where the driver does not report it."""
    details = resource.listed.parents.get(resource.parent_of(device_id)) or resource.reported(device_id)
    return dict(details.attributes).get(_BUS_ID, "") if details is not None else ""


def _cdi_devices(container: RunningContainer, *edits: ContainerEdits) -> set[str]:
    """Those that a container has or gets, of plugins and of claims."""
    return {*container.cdi_devices, *(device for each in edits for device in each.cdi_devices)}
