"""Devices that say what they are, and the built-in plugins that list them."""

from nodedevice_agent.devicemanager.resources import availability
from nodedevice_agent.devicemanager.resources.connections import BUILT_IN, PluginOptions
from nodedevice_agent.devicemanager.resources.devices import Device

from tests.unit.node_agent.devicemanager.scenario import GPU, NIC, Scenario


def own(name: str) -> PluginOptions:
    return PluginOptions(scope=f"{BUILT_IN}{name}")


def offers(scenario: Scenario, name: str, *devices: Device, endpoint: int = 0) -> None:
    """A built-in plugin lists these."""
    number = endpoint or {GPU: 1, NIC: 2}[name]
    scenario.plugin(devices, name, number, own(name))


def offering(*devices: Device, name: str = GPU) -> Scenario:
    """One whose built-in plugin lists these."""
    scenario = Scenario()
    offers(scenario, name, *devices)
    return scenario


def device(name: str, *identity: str, shared: bool = False, aliases: tuple[str, ...] = ()) -> Device:
    return Device(name, identity=identity, is_shared=shared, aliases=aliases)


def free(scenario: Scenario) -> list[str]:
    return [i for _, resource in sorted(scenario.manager.resources.items()) for i in availability.free(resource)]
