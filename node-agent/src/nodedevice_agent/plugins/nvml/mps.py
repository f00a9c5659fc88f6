"""Variables and mounts for an MPS daemon that the administrator runs for shared GPUs. The daemon enforces it, not the agent. Pure.

Source: NVIDIA MPS documentation, appendix on environment variables; both limits count in a client's environment.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from nodedevice_agent.lib.deviceplugin_server.values import ContainerAllocation, Mount
from nodedevice_agent.plugins.nvml.driver_troubles import Trouble
from nodedevice_agent.plugins.nvml.environment import MPS_MEMORY, MPS_PIPE, MPS_THREADS
from nodedevice_agent.plugins.nvml.parts import HeldParts, memory_mib
from nodedevice_agent.plugins.nvml.reasons import GpuReason
from nodedevice_agent.plugins.nvml.settings import MpsSettings, SharesSettings

_SHM = "/dev/shm"
_REMEDY = "take mps out of its shares, or use whole"


def control_path(mps: MpsSettings) -> str:
    """A file that exists while a daemon uses the directory."""
    return f"{mps.pipe_directory.rstrip('/')}/control"


def not_running(mps: MpsSettings) -> Trouble:
    message = f"no MPS daemon: {control_path(mps)} is not there; start nvidia-cuda-mps-control -d, or set shares.mps.pipeDirectory"
    return Trouble(GpuReason.MPS_NOT_RUNNING, message)


def with_mps(made: ContainerAllocation, mps: MpsSettings, held: Sequence[HeldParts]) -> ContainerAllocation:
    """The allocation, and the daemon's directories and the limits of these shares. Raises Refused."""
    pipe = mps.pipe_directory
    # as the driver orders them in the container
    in_order = sorted(held, key=lambda each: (each.gpu.pci_bus_id, each.gpu.uuid))
    limits = [f"{place}={memory_mib(each, _REMEDY)}M" for place, each in enumerate(in_order)]
    env = {
        MPS_PIPE: pipe,
        MPS_THREADS: str(min(map(_percentage, held))),
        MPS_MEMORY: ",".join(limits),
    }
    mounts = (Mount(pipe, pipe), Mount(mps.shm_directory, _SHM))
    return replace(made, env={**made.env, **env}, mounts=(*made.mounts, *mounts))


def _percentage(held: HeldParts) -> int:
    """0 would be no limit."""
    return max(1, 100 * held.count // held.parts.replicas) if isinstance(held.parts, SharesSettings) else 100
