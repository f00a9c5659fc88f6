"""Compares the GPUs that NVIDIA's driver reports with the agent's settings."""

import asyncio
from collections.abc import Sequence
from typing import Final

from nodedevice_agent.lib.file_reads import FileReads
from nodedevice_agent.plugins.contract import Discovered, Reported
from nodedevice_agent.plugins.nvml.gpu import Gpu
from nodedevice_agent.plugins.nvml.parts import uses_of
from nodedevice_agent.plugins.nvml.reader.messages import Found, Problem, ReaderOptions
from nodedevice_agent.plugins.nvml.reader.process import ReaderFailed, ReaderProcess
from nodedevice_agent.plugins.nvml.settings import NvmlSettings

PCI_VENDOR: Final = "10de"
UNREPORTED: Final = "NVIDIA's driver does not report it here"
_PATIENCE_SECONDS: Final = 20.0


async def discover(configured: Sequence[NvmlSettings], host_root: str, reads: FileReads) -> Discovered:
    gpus, problem = await nvidia_gpus(configured, host_root)
    return discovered(gpus, configured, problem)


def discovered(gpus: Sequence[Gpu], configured: Sequence[NvmlSettings] = (), problem: str = "") -> Discovered:
    reported = [
        Reported(
            gpu.model,
            {"uuid": gpu.uuid},
            gpu.pci_bus_id,
            tuple(use.resource_name for settings in configured for use in uses_of(gpu, settings)),
        )
        for gpu in gpus
    ]
    return Discovered(tuple(reported), PCI_VENDOR, UNREPORTED, {"nvml": {}}, problem)


async def nvidia_gpus(configured: Sequence[NvmlSettings], host_root: str) -> tuple[tuple[Gpu, ...], str]:
    """NVIDIA's GPUs, as a separate process reads them, or the reason for an empty result; "" if the node has no such driver."""
    options = ReaderOptions(1.0, 5.0, host_root, configured[0].library_dir if configured else "")
    try:
        reader = await ReaderProcess.start(options, _PATIENCE_SECONDS)
    except OSError as error:
        return (), f"NVIDIA's driver cannot be asked: {error.strerror}"
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            message = await reader.inventory()
    except TimeoutError:
        return (), f"NVIDIA's driver cannot be asked: no inventory within {_PATIENCE_SECONDS:g} s"
    except ReaderFailed as error:
        return (), f"NVIDIA's driver cannot be asked: {error}"
    finally:
        await reader.end()
    if isinstance(message, Found):
        return tuple(gpu for gpu in message.gpus if gpu.is_plausible), ""
    return (), message.message if isinstance(message, Problem) else ""
