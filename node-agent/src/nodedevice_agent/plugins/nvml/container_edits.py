"""What a container gets for its GPUs: a variable that NVIDIA's container runtime reads, the device files, CDI names; or several."""

from collections.abc import Collection, Iterable

from nodedevice_agent.lib.deviceplugin_server.values import AllocationRefused, ContainerAllocation, DeviceNode
from nodedevice_agent.plugins.nvml.gpu import Gpu

ENV, DEVICE_NODES, CDI = "env", "deviceNodes", "cdi"

VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
# beside each GPU's own; the first two are needed by every CUDA program, the others where the driver has them
CONTROL_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")


def allocation(
    resource_name: str, gpus: Iterable[Gpu], ways: Collection[str], cdi_kind: str, control_nodes: Iterable[str]
) -> ContainerAllocation:
    """ways: of ENV, DEVICE_NODES and CDI. control_nodes: those of CONTROL_NODES that exist on this node.

    Raises AllocationRefused.
    """
    wanted = sorted(gpus, key=lambda gpu: gpu.uuid)
    nodes: list[str] = []
    if DEVICE_NODES in ways:
        unnumbered = [gpu.uuid for gpu in wanted if gpu.minor is None]
        if unnumbered:
            raise AllocationRefused(
                resource_name,
                f"the driver does not tell the device file of {', '.join(unnumbered)}; let handOver be env or cdi",
            )
        nodes = [*(f"/dev/nvidia{gpu.minor}" for gpu in wanted), *control_nodes]
    return ContainerAllocation(
        device_nodes=tuple(DeviceNode(path, path, "rw") for path in nodes),
        env={VISIBLE_DEVICES: ",".join(gpu.uuid for gpu in wanted)} if ENV in ways else {},
        cdi_devices=tuple(f"{cdi_kind}={gpu.uuid}" for gpu in wanted) if CDI in ways else (),
    )
