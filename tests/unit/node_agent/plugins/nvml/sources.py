"""A resource of GPUs on a made-up host, as the watch publishes it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from nodedevice_agent.lib.deviceplugin_server.values import Delivery
from nodedevice_agent.plugins.nvml.gpu import Gpu
from nodedevice_agent.plugins.nvml.limited_source import LimitedSource, source_of
from nodedevice_agent.plugins.nvml.node_gpus import Fleet
from nodedevice_agent.plugins.nvml.parts import uses_of
from nodedevice_agent.plugins.nvml.reader.messages import Found
from nodedevice_agent.plugins.nvml.settings import NvmlSettings
from nodedevice_agent.plugins.nvml.source import HostOfGpus, NvmlSource


class Served:
    """The last resource of these settings. root: the host's file tree."""

    def __init__(
        self, root: Path | str, *gpus: Gpu, version: str = "580.1", delivery: Delivery | None = None, **settings: Any
    ) -> None:
        self.settings = msgspec.convert(settings, NvmlSettings)
        self.fleet = Fleet(self.settings.health_rules())
        host = HostOfGpus.seen_at(str(root), self.settings, delivery)
        name = self.settings.resource_names()[-1]
        self.source: NvmlSource = source_of(name, self.settings, host, self.fleet, Path(f"{root}.state"))
        self.found(*gpus, version=version)

    def found(self, *gpus: Gpu, version: str = "580.1") -> None:
        """The driver reports these GPUs."""
        self.fleet.found(Found(version, list(gpus)))
        self.publish()

    def publish(self) -> None:
        uses = [(gpu, use) for gpu in self.fleet.gpus.values() for use in uses_of(gpu, self.settings)]
        self.source.publish([each for each in uses if each[1].resource_name == self.source.resource_name])

    async def connected(self, held: Sequence[Any] = ()) -> NvmlSource:
        """The source after a device manager has reported what containers hold."""
        if isinstance(self.source, LimitedSource):
            await self.source.holdings(held)
        return self.source
