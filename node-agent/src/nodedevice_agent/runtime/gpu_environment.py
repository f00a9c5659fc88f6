"""What a container's own environment may say of GPUs, on a node whose agent serves them: what it was given, no more. Pure.

A container with GPUs of the nvml plugin has the variables of its table as the plugin answered them. One without a GPU gets none of
NVIDIA's container runtime either, whose word for that is void: images of CUDA ask for all GPUs. The runtime shows a container's
whole environment, its image's included, so nothing rests on what the API shows of the pod; init, ephemeral and privileged
containers, and those of static pods, are containers like others.
"""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from nodedevice_agent.devicemanager.allocation.allocations import Allocation
from nodedevice_agent.devicemanager.allocation.container_edits import ContainerEdits
from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.resources.resource import Resource
from nodedevice_agent.devicemanager.runtime import RunningContainer, Sandbox
from nodedevice_agent.plugins.nvml.environment import (
    VISIBLE_DEVICES,
    Answer,
    Overruling,
    for_other,
    joined,
    variables,
)
from nodedevice_agent.plugins.settings import GPU_SCOPE

_VENDOR = "nvidia.com"
_BUS_ID = "pciBusID"


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
        self, sandbox: Sandbox, container: RunningContainer, given: ContainerEdits | None = None
    ) -> Overruling | None:
        """For a container without a GPU of ours that names some; None for any other. given: what it gets of other plugins."""
        if self._exempt is None or (found := for_other(variables(container.env))) is None:
            return None
        if self.holds(sandbox.uid, container.name):
            return None
        devices = [*container.cdi_devices, *(given.cdi_devices if given is not None else ())]
        is_given = given is not None and VISIBLE_DEVICES in given.envs
        return None if is_given or any(map(_is_nvidias, devices)) else found

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


def _is_nvidias(cdi_device: str) -> bool:
    """Whether this CDI device is a GPU that the kubelet's own plugin or a claim gave, such as k8s.gpu.nvidia.com/claim=…."""
    vendor = cdi_device.partition("/")[0]
    return vendor == _VENDOR or vendor.endswith(f".{_VENDOR}")
