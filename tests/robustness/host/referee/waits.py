"""Waits that nobody could avoid on the made-up host: why a device that is there is not allocated, or a container does not start.

Everything else that waits is a breach. The list is complete: the referee counts each wait by its entry here.
"""

from enum import Enum


class Wait(Enum):
    """The value is the reason."""

    UNREAD = "the kernel does not say which device it is, as a file of the device cannot be read"
    MISSING = (
        "the device was not found while some file could not be read, so that it may be there; for a minute at most"
    )
    FLAPPING = "a device that comes and goes is damped, perhaps under another name"
    CORDONED = "a cordoned device is out of service under each name"
    LOST_ANSWER = "a pod has an allocation whose response was lost; its files are not known yet"
    HELD = "a pod may hold the device: by its number, its port, its serial, or the name that it had"
    IN_CONTAINER = "a container that still runs has a device file with the number"
    ENDING = "the pod is over, and its devices are being released"
    FOREIGN = "a plugin of somebody else serves the resource, and is known by numbers alone"
    CHANGED_REQUEST = "the container was not allocated all that it asks for"
    NOT_SERVED = "the plugin of the resource is not connected, or does not list the devices"
    NOT_AS_IT_WAS = "the device has another name, number or place than when it was allocated"
