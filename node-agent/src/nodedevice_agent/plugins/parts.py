"""Settings of devices that are shared in parts: how the parts of several devices are chosen and counted. Pure."""

from typing import Literal

from msgspec import Struct
from nodedevice_api.parts import Advertise, Choice, PartRules, Placement, PodPlacement


class PartChoiceSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """How the parts of several devices are chosen and counted."""

    # parts of the device with the fewest free parts that fit (binpack), or of the device with the most (spread)
    choice: Literal["binpack", "spread"] = "binpack"
    # containers of one pod get parts of the same device (together) or of different ones (apart), where possible
    containers: Literal["any", "together", "apart"] = "any"
    # free parts that the Node's capacity counts: of all devices (sum), or of the device with the most (largest)
    advertise: Literal["sum", "largest"] = "sum"

    def part_rules(self, placement: Placement) -> PartRules:
        choice, containers = Choice[self.choice.upper()], PodPlacement[self.containers.upper()]
        return PartRules(placement, choice, containers, Advertise[self.advertise.upper()])


class PartsSettings(PartChoiceSettings, frozen=True, kw_only=True):
    """Rules for the parts of shared devices."""

    # parts of one container: of any devices, of one device, or each of another device
    placement: Literal["any", "same-parent", "distinct-parents"] = "any"

    def rules(self) -> PartRules:
        return self.part_rules(Placement[self.placement.upper().replace("-", "_")])
