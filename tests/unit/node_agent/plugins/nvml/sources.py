"""A resource of GPUs on a made-up host, as the watch publishes it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from nodedevice_agent.lib.deviceplugin_server.values import ContainerIdentity, Injector
from nodedevice_agent.plugins.nvml.driver_troubles import Trouble
from nodedevice_agent.plugins.nvml.gpu import Gpu
from nodedevice_agent.plugins.nvml.limited_source import LimitedSource, source_of
from nodedevice_agent.plugins.nvml.node_gpus import Fleet
from nodedevice_agent.plugins.nvml.parts import Listing, listing, uses_of
from nodedevice_agent.plugins.nvml.reader.messages import Found
from nodedevice_agent.plugins.nvml.settings import NvmlSettings
from nodedevice_agent.plugins.nvml.source import HostOfGpus, NvmlSource

SOMEBODY: Final = ContainerIdentity("default", "pod", "6b4c7d1a-0000-4000-8000-000000000001", "main")


def place(root: Path, path: str) -> Path:
    """A path of the host's file tree, in a directory that is there."""
    made = root / path.lstrip("/")
    made.parent.mkdir(parents=True, exist_ok=True)
    return made


def device_file(root: Path, path: str) -> None:
    """A device file whose number is not that of the kernel's memory devices."""
    place(root, path).symlink_to("/dev/tty")


def listed(settings: NvmlSettings, gpus: Sequence[Gpu], trouble: Callable[[str], Trouble | None]) -> dict[str, Listing]:
    uses = [(gpu, use) for gpu in gpus for use in uses_of(gpu, settings)]
    names = dict.fromkeys(use.resource_name for _, use in uses)
    return {name: listing([each for each in uses if each[1].resource_name == name], trouble) for name in names}


class Served:
    """The last resource of these settings. root: the host's file tree."""

    def __init__(
        self, root: Path | str, *gpus: Gpu, version: str = "580.1", injector: Injector | None = None, **settings: Any
    ) -> None:
        self.settings = msgspec.convert(settings, NvmlSettings)
        self.fleet = Fleet(self.settings.health_rules())
        host = HostOfGpus.seen_at(str(root), self.settings, injector)
        name = self.settings.resource_names()[-1]
        self.source: NvmlSource = source_of(name, self.settings, host, self.fleet, Path(f"{root}.state"))
        self.found(*gpus, version=version)

    def found(self, *gpus: Gpu, version: str = "580.1") -> None:
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
