"""What a container gets of an MPS daemon that the administrator runs for shared GPUs. The daemon enforces it, not the agent. Pure.

Source: NVIDIA MPS documentation, appendix on environment variables; both limits count in a client's environment.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from nodedevice_agent.lib.deviceplugin_server.values import ContainerAllocation, Mount
from nodedevice_agent.plugins.nvml.health import Trouble
from nodedevice_agent.plugins.nvml.parts import HeldParts
from nodedevice_agent.plugins.nvml.settings import MpsSettings, SharesSettings

_SHM = "/dev/shm"
_MIB_SHIFT = 20


def control_path(mps: MpsSettings) -> str:
    """What a running daemon has in its directory."""
    return f"{mps.pipe_directory.rstrip('/')}/control"


def not_running(mps: MpsSettings) -> Trouble:
    message = f"no MPS daemon: {control_path(mps)} is not there; start nvidia-cuda-mps-control -d, or set shares.mps.pipeDirectory"
    return Trouble("MpsNotRunning", message)


def with_mps(made: ContainerAllocation, mps: MpsSettings, held: Sequence[HeldParts]) -> ContainerAllocation:
    """The allocation, and the daemon's directories and the limits of these shares."""
    pipe = mps.pipe_directory
    # as the driver orders them in the container; an index is of the moment when its GPU was first seen
    in_order = sorted(held, key=lambda each: (each.gpu.pci_bus_id, each.gpu.index or 0, each.gpu.uuid))
    limits = [f"{place}={limit}M" for place, limit in enumerate(map(_memory_mib, in_order)) if limit]
    env = {
        "CUDA_MPS_PIPE_DIRECTORY": pipe,
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(min(map(_percentage, held))),
        **({"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": ",".join(limits)} if limits else {}),
    }
    mounts = (Mount(pipe, pipe), Mount(mps.shm_directory, _SHM))
    return replace(made, env={**made.env, **env}, mounts=(*made.mounts, *mounts))


def _percentage(held: HeldParts) -> int:
    """0 would be no limit."""
    return max(1, 100 * held.count // held.parts.replicas) if isinstance(held.parts, SharesSettings) else 100


def _memory_mib(held: HeldParts) -> int:
    """0: unknown."""
    if not isinstance(held.parts, SharesSettings):
        return 0
    shared = max((held.gpu.memory_bytes or 0) - held.parts.reserve_bytes, 0)
    return (shared * held.count // held.parts.replicas) >> _MIB_SHIFT
