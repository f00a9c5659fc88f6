"""Decoding of a device list: a long one in a thread, so that the event loop can answer the container runtime meanwhile."""

import asyncio
from collections.abc import Callable
from functools import partial

from nodedevice_common.threads import in_thread

from nodedevice_agent.devicemanager.resources.devices import MAX_DEVICES, ListedDevices
from nodedevice_agent.deviceplugin import codec

# A longer list is decoded in a thread, because the event loop may have to answer the container runtime: 131,072 devices take a
# quarter of a second, some 1,800 three milliseconds. One after the other: as many threads as there are streams would each get
# as much of the interpreter as the loop.
_MAX_BYTES_IN_LOOP = 32 * 1024
# of a list that is decoded before anybody asks whether there is room
_SHORT_BYTES = 4096


def most_alone() -> int:
    """Devices that a list may have where nobody else lists any."""
    return MAX_DEVICES


async def decoded_list(
    octets: bytes, known: ListedDevices, turn: asyncio.Lock, most: Callable[[], int] = most_alone, *, is_built_in: bool
) -> ListedDevices:
    """known: the list before it. turn: held while a long list is decoded. most: devices that there is room for then.

    Raises DecodeError.
    """
    if len(octets) <= _MAX_BYTES_IN_LOOP:
        found = most() if len(octets) > _SHORT_BYTES else MAX_DEVICES
        return codec.device_list(octets, known, is_built_in=is_built_in, most=found)
    async with turn:
        now = asyncio.get_running_loop().time
        began = now()
        listed = await in_thread(partial(codec.device_list, octets, known, is_built_in=is_built_in, most=most()))
        # whatever plugins send, the interpreter is the loop's for half of the time
        await asyncio.sleep(now() - began)
        return listed
