"""Limits how many devices the built-in plugins of a node list together, so that each resource can list some.

A resource keeps its list, and the next one gets the rest; each has a guaranteed minimum.
"""

from typing import Final

# Lists and what containers get cost two kilobytes for each; a node has hundreds.
MAX_DEVICES_OF_ALL: Final = 16_384
LEAST_DEVICES: Final = 64


class Room:
    """The room of one node. most: devices of all resources. least: of each."""

    def __init__(self, most: int = MAX_DEVICES_OF_ALL, least: int = LEAST_DEVICES) -> None:
        self._most, self._least = most, least
        self._listed: dict[str, int] = {}

    def left(self, resource_name: str) -> int:
        """How many devices this resource may list."""
        others = (count for name, count in [*self._listed.items()] if name != resource_name)
        # without the least of each: what a small one lists takes nothing from one that has its devices
        taken = sum(max(0, count - self._least) for count in others)
        return max(self._least, self._most - taken)

    def note(self, resource_name: str, devices: int) -> None:
        """Record the number of listed devices."""
        self._listed[resource_name] = devices

    def forget(self, resource_name: str) -> None:
        """Call after the plugin has ended."""
        self._listed.pop(resource_name, None)

    def problem(self, resource_name: str, most: int, key: str) -> str:
        """The problem of a resource with more devices than it may list. key: the setting that reduces them."""
        listed = {name: count for name, count in [*self._listed.items()] if name != resource_name}
        largest = max(listed, key=lambda name: (listed[name], name), default="")
        others = f", or of {largest}, which lists {listed[largest]}" if largest else ""
        return (
            f"{resource_name} has more devices than the {most} that are listed, as the built-in plugins of a node list "
            f"{self._most} in all: {key} of {resource_name}{others}"
        )
