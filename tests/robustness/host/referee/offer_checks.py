"""What plugins of the made-up host offer: nothing that a pod holds, nothing twice, and nothing held back without a reason."""

from nodedevice_agent.lib.deviceplugin_server.values import PluginDevice

from tests.robustness.host.hardware import Node, is_same
from tests.robustness.host.referee.held import HeldDevices
from tests.robustness.host.referee.offers import offers_of, waiting_for_free
from tests.robustness.host.referee.reasons import is_unread, why_held_back
from tests.robustness.host.referee.records import Counts, Offer, breach, clash
from tests.robustness.host.referee.waits import Wait
from tests.robustness.host.world import FOREIGN, World


class OfferChecks:
    def __init__(self, world: World, devices: HeldDevices, counts: Counts) -> None:
        self._world, self._devices, self._counts = world, devices, counts

    def check(self) -> None:
        """Raises Breach. A held device is offered to no other pod, and no device is offered twice."""
        offers = offers_of(self._world)
        self._counts.checks["offers"] += len(offers)
        free = [offer for offer in offers if offer.is_free]
        held = [
            (node, each, each.is_shared)
            for each in self._devices.by_key.values()
            for node in self._devices.certainly(each)
        ]
        for number, offer in enumerate(free):
            for node in offer.nodes:
                for other, each, is_shared in held:
                    if is_same(node, other) and not (offer.is_shared and is_shared):
                        if each.allocation.resource_name == FOREIGN:
                            continue
                        breach(
                            "held and offered",
                            f"{offer} is free, and {each.allocation.pod_uid} holds {other.path} ({other.number}) of "
                            f"{each.allocation.resource_name} {each.allocation.device_ids}",
                        )
            for other_offer in free[number + 1 :]:
                if clash(offer, other_offer):
                    breach("offered twice", f"{offer} and {other_offer} are free")
        for offer in offers:
            # one that is damped may have left
            if offer.is_held_back and offer.nodes:
                self._check_held_back(offer, offers)
        self._check_unconfirmed()

    def _check_unconfirmed(self) -> None:
        """A device whose files can be read is confirmed, whatever else cannot be read."""
        for name, plugin in self._world.running_agent.plugins.items():
            for listed_id in plugin.source.devices.unconfirmed:
                device = next(device for device in plugin.source.devices.latest if device.id == listed_id)
                nodes = [self._world.host.node(path) for path, _ in device.files]
                self._counts.checks["unconfirmed"] += 1
                if not nodes or any(node is None or not _is_listed_with(device, node) for node in nodes):
                    self._counts.waits[Wait.MISSING] += 1
                elif any(node is not None and is_unread(self._world, node) for node in nodes):
                    self._counts.waits[Wait.UNREAD] += 1
                else:
                    breach("held back", f"{listed_id} of {name} is not confirmed, and can be read: {nodes}")

    def _check_held_back(self, offer: Offer, offers: list[Offer]) -> None:
        if any(clash(offer, other) for other in offers if other is not offer and not other.is_held_back):
            # it is offered under another name
            return
        self._counts.checks["held back"] += 1
        wait = why_held_back(self._world, self._devices, offer)
        if wait is None:
            breach("held back", f"{offer} is held back, and no pod has it")
        self._counts.waits[wait] += 1

    def check_idle(self) -> None:
        """No pod is there any more: each device that is not cordoned can be had, under one of its names."""
        for name, resource in self._world.running_agent.manager.resources.items():
            if resource.use.holders or resource.use.reserved:
                breach(
                    "hangs", f"no pod exists, and {name} has holders {resource.use.holders or resource.use.reserved}"
                )
        offers = offers_of(self._world)
        free = [offer for offer in offers if offer.is_free]
        for offer in offers:
            if offer.is_free or any(clash(offer, other) for other in free):
                continue
            if any(is_unread(self._world, node) for node in offer.nodes):
                self._counts.waits[Wait.UNREAD] += 1
            else:
                breach("hangs", f"no pod is left, and {offer} is not free")

    def check_waiting(self) -> None:
        """No pod waits for what is free."""
        for pod_uid, lacks in waiting_for_free(self._world):
            breach("hangs", f"{pod_uid} waits for {lacks}, and these are free")


def _is_listed_with(device: PluginDevice, node: Node) -> bool:
    """Whether a device is listed as what this file leads to."""
    maker = "/usb/" + ":".join(node.stick.identity) if node.stick is not None else ""
    return node.sysfs in device.identity and any(token.startswith(maker) for token in device.identity)
