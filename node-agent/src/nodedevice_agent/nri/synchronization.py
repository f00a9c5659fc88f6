"""The runtime's pods and containers as it lists them to a plugin: decoded one by one, as the messages arrive.

A message has up to 4 MiB, and the list any number of them. The event loop has a turn after a few objects, and only what the agent
reads is kept of each: the environment of one container alone may have megabytes.
Source: containerd/nri pkg/adaptation/plugin.go, synchronize @ v0.12.5.
"""

import asyncio

from nodedevice_api.upstream.nri.v1alpha1 import api_pb2

from nodedevice_agent.devicemanager.runtime import RunningContainer, Sandbox
from nodedevice_agent.lib.wire_fields import fields
from nodedevice_agent.nri import codec

# Decoded in one turn of the event loop, or one object: 10 ms at the most.
_TURN_BYTES = 256 * 1024
# Nodes have some hundred. One takes a kilobyte, and 16 more for one that has no mark.
MOST_OBJECTS = 16384


class TooManyObjects(Exception):
    """The runtime lists more than MOST_OBJECTS pods and containers."""


class Synchronization:
    """sandboxes, containers: of all messages so far."""

    def __init__(self) -> None:
        self.sandboxes: list[Sandbox] = []
        self.containers: list[RunningContainer] = []

    async def add(self, message: bytes) -> bool:
        """Takes an encoded SynchronizeRequest. Returns whether more of them follow. Raises DecodeError and TooManyObjects."""
        has_more, size = False, 0
        for _, begin, _, end in fields(message):
            part = api_pb2.SynchronizeRequest.FromString(message[begin:end])
            self.sandboxes += map(codec.sandbox, part.pods)
            self.containers += map(codec.listed_container, part.containers)
            has_more = has_more or part.more
            if len(self.sandboxes) + len(self.containers) > MOST_OBJECTS:
                raise TooManyObjects
            size += end - begin
            if size >= _TURN_BYTES:
                size = 0
                await asyncio.sleep(0)
        return has_more
