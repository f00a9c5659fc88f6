"""Settings of devices that are shared in parts: how the parts of several devices are chosen and counted. Pure."""

from typing import Literal

from msgspec import Struct
from nodedevice_api.parts import Advertise, Choice, PartRules, Placement, PodPlacement

_PLACEMENTS = {
    "any": Placement.ANY,
    "same-parent": Placement.SAME_PARENT,
    "distinct-parents": Placement.DISTINCT_PARENTS,
}
_CHOICES = {"binpack": Choice.BINPACK, "spread": Choice.SPREAD}
_CONTAINERS = {"any": PodPlacement.ANY, "together": PodPlacement.TOGETHER, "apart": PodPlacement.APART}
_ADVERTISE = {"sum": Advertise.SUM, "largest": Advertise.LARGEST}


class PartChoiceSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """How the parts of several devices are chosen and counted."""

    # the device with the fewest free parts that fits, which keeps others whole; or the one with the most
    choice: Literal["binpack", "spread"] = "binpack"
    # whether the containers of one pod get parts of the same device, or of different ones, where possible
    containers: Literal["any", "together", "apart"] = "any"
    # what the Node's capacity counts in addition to allocated parts: all free parts, or only the device with the most
    advertise: Literal["sum", "largest"] = "sum"

    def part_rules(self, placement: Placement) -> PartRules:
        return PartRules(placement, _CHOICES[self.choice], _CONTAINERS[self.containers], _ADVERTISE[self.advertise])


class PartsSettings(PartChoiceSettings, frozen=True, kw_only=True):
    """Rules for the parts of shared devices."""

    # the parts of one container: of any devices, all of the same one, or each of another one
    placement: Literal["any", "same-parent", "distinct-parents"] = "any"

    def rules(self) -> PartRules:
        return self.part_rules(_PLACEMENTS[self.placement])
