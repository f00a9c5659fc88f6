"""Devices of a GPU, and what a container gets for them. A device is a whole GPU; shares or slices of one would be made here.

Device IDs are the GPUs' UUIDs: they survive reboots, and CUDA and the container toolkits take them.
"""

from collections.abc import Collection, Iterable, Mapping

from nodedevice_agent.lib.deviceplugin_server.values import (
    AllocationRefused,
    ContainerAllocation,
    DeviceNode,
    PluginDevice,
)
from nodedevice_agent.plugins.nvml.gpu import Gpu
from nodedevice_agent.plugins.nvml.health.health import Trouble
from nodedevice_agent.plugins.nvml.links import Pair

ENV, DEVICE_NODES, CDI = "env", "deviceNodes", "cdi"

VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
# besides each GPU's own; every CUDA program needs the first two, and the others where the driver has them
CONTROL_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")


def devices_of(gpu: Gpu, trouble: Trouble | None) -> tuple[PluginDevice, ...]:
    """The devices to list for this GPU."""
    return (
        PluginDevice(
            gpu.uuid,
            is_healthy=trouble is None,
            numa_nodes=gpu.numa_nodes(),
            reason=trouble.reason if trouble else "",
            message=trouble.message if trouble else "",
            attributes=tuple(sorted(gpu.attributes().items())),
        ),
    )


def gpu_uuid(device_id: str) -> str:
    """The GPU of a device."""
    return device_id


def device_scores(gpu_scores: Mapping[Pair, int]) -> Mapping[Pair, int]:
    """Scores of pairs of devices, from scores of pairs of GPUs."""
    return gpu_scores


def allocation(
    resource_name: str, gpus: Iterable[Gpu], ways: Collection[str], cdi_kind: str, control_nodes: Iterable[str]
) -> ContainerAllocation:
    """What a container with these GPUs gets.

    ways: of ENV, DEVICE_NODES and CDI. control_nodes: the CONTROL_NODES that exist on this node.

    Raises AllocationRefused.
    """
    wanted = sorted(gpus, key=lambda gpu: gpu.uuid)
    nodes: list[str] = []
    if DEVICE_NODES in ways:
        unnumbered = [gpu.uuid for gpu in wanted if gpu.minor is None]
        if unnumbered:
            raise AllocationRefused(
                resource_name,
                f"the driver does not report the device file of {', '.join(unnumbered)}; set handOver to env or cdi",
            )
        nodes = [*(f"/dev/nvidia{gpu.minor}" for gpu in wanted), *control_nodes]
    return ContainerAllocation(
        device_nodes=tuple(DeviceNode(path, path, "rw") for path in nodes),
        env={VISIBLE_DEVICES: ",".join(gpu.uuid for gpu in wanted)} if ENV in ways else {},
        cdi_devices=tuple(f"{cdi_kind}={gpu.uuid}" for gpu in wanted) if CDI in ways else (),
    )
