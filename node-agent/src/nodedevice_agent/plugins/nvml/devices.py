"""What is a device of a GPU: the whole of it. The one place that knows; shares and slices of a GPU would be made here.

Device IDs are the GPUs' UUIDs: they stay over reboots, and are what CUDA and the container toolkits take.
"""

from collections.abc import Mapping

from nodedevice_agent.lib.deviceplugin_server.values import PluginDevice
from nodedevice_agent.plugins.nvml.gpu import Gpu
from nodedevice_agent.plugins.nvml.health.health import Trouble
from nodedevice_agent.plugins.nvml.links import Pair


def devices_of(gpu: Gpu, trouble: Trouble | None) -> tuple[PluginDevice, ...]:
    """What is listed for this GPU."""
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
    """The GPU that a device is of."""
    return device_id


def device_scores(gpu_scores: Mapping[Pair, int]) -> Mapping[Pair, int]:
    """The scores of pairs of devices, of those of pairs of GPUs."""
    return gpu_scores
