"""Settings of the simulated plugin.

What types do not state is in charts/config_rules.py, and checked before settings are made of it.
"""

from typing import Annotated, ClassVar

from msgspec import Meta
from nodedevice_api.parts import PartRules

from nodedevice_agent.plugins.contract import OneResource
from nodedevice_agent.plugins.parts import PartsSettings
from nodedevice_agent.plugins.simulated.devices import MAX_SIMULATED


class SimulatedSettings(OneResource, frozen=True):
    """One resource of simulated devices."""

    command: ClassVar[str] = "simulate"

    # number of devices
    count: Annotated[int, Meta(ge=0, le=MAX_SIMULATED)] = 1
    # NUMA nodes over which the devices are spread; 0: devices have no NUMA node
    numa_nodes: Annotated[int, Meta(ge=0, le=64)] = 0
    # prefix of device IDs; empty: the part of the resource name after the slash
    id_prefix: str = ""
    # parts of each device; a container requests some of them. 1: whole devices
    parts_per_device: Annotated[int, Meta(ge=1, le=1000)] = 1
    # rules for these parts
    parts: PartsSettings = PartsSettings()

    @property
    def part_rules(self) -> PartRules | None:
        """None for whole devices."""
        return self.parts.rules() if self.parts_per_device > 1 else None

    @property
    def prefers(self) -> bool:
        return self.numa_nodes > 0

    def prefix(self) -> str:
        """The prefix of device IDs."""
        return self.id_prefix or self.resource_name.partition("/")[2][:54]
