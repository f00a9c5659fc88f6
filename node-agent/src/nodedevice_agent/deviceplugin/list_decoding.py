"""Decodes device lists, long ones in a thread, so that the event loop can serve the container runtime meanwhile."""

import asyncio
from collections.abc import Callable
from functools import partial

from nodedevice_common.threads import in_thread

from nodedevice_agent.devicemanager.resources.devices import MAX_DEVICES, ListedDevices
from nodedevice_agent.deviceplugin import codec

# A longer list is decoded in a thread, because the event loop serves the container runtime: 131,072 devices take a
# quarter of a second, some 1,800 three milliseconds. One after the other: as many threads as there are streams would each get
# as much of the interpreter as the loop.
_MAX_BYTES_IN_LOOP = 32 * 1024
# the size of a list that is decoded without a check for room
_SHORT_BYTES = 4096


def most_alone() -> int:
    """The most devices of a list if no other list has any."""
    return MAX_DEVICES


async def decoded_list(
    octets: bytes, known: ListedDevices, turn: asyncio.Lock, most: Callable[[], int] = most_alone, *, is_built_in: bool
) -> ListedDevices:
    """known: the list before it. turn: held while a long list is decoded. most: the number of devices with room at that time.

    Raises DecodeError.
    """
    if len(octets) <= _MAX_BYTES_IN_LOOP:
        found = most() if len(octets) > _SHORT_BYTES else MAX_DEVICES
        return codec.device_list(octets, known, is_built_in=is_built_in, most=found)
    async with turn:
        now = asyncio.get_running_loop().time
        began = now()
        listed = await in_thread(partial(codec.device_list, octets, known, is_built_in=is_built_in, most=most()))
        # the event loop has the interpreter for half of the time, for any lists of plugins
        await asyncio.sleep(now() - began)
        return listed
