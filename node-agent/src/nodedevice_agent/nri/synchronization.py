"""The runtime's pods and containers as it lists them to a plugin: decoded one by one, as the messages arrive.

A message has up to 4 MiB, and the list any number of them: the environment of one container alone may have megabytes. So only what
the agent reads is kept of each object, and the event loop has a turn after a few of them.
Source: containerd/nri pkg/adaptation/plugin.go, synchronize @ v0.12.5; the wire format: protobuf.dev, Encoding.
"""

import asyncio
from collections.abc import Iterator

from google.protobuf.message import DecodeError
from nodedevice_api.upstream.nri.v1alpha1 import api_pb2

from nodedevice_agent.devicemanager.runtime import RunningContainer, Sandbox
from nodedevice_agent.nri import codec

_PODS = api_pb2.SynchronizeRequest.PODS_FIELD_NUMBER
_CONTAINERS = api_pb2.SynchronizeRequest.CONTAINERS_FIELD_NUMBER
_MORE = api_pb2.SynchronizeRequest.MORE_FIELD_NUMBER
# Decoded in one turn of the event loop, or one object: 10 ms at the most.
_TURN_BYTES = 256 * 1024
# Nodes have some hundred. One takes a kilobyte, and 16 more for one that has no mark.
MOST_OBJECTS = 16384
# types of fields in the wire format, and the sizes of types that NRI does not use
_VARINT, _BYTES = 0, 2
_FIXED = {1: 8, 5: 4}


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
        for number, value in _fields(message):
            if number == _MORE:
                has_more = bool(value)
            elif isinstance(value, bytes):
                self._add(number, value)
                size += len(value)
            if size >= _TURN_BYTES:
                size = 0
                await asyncio.sleep(0)
        return has_more

    def _add(self, number: int, value: bytes) -> None:
        if number == _PODS:
            self.sandboxes.append(codec.sandbox(api_pb2.PodSandbox.FromString(value)))
        elif number == _CONTAINERS:
            self.containers.append(codec.listed_container(api_pb2.Container.FromString(value)))
        if len(self.sandboxes) + len(self.containers) > MOST_OBJECTS:
            raise TooManyObjects


def _fields(message: bytes) -> Iterator[tuple[int, bytes | int]]:
    """Number and value of each field of an encoded message. Raises DecodeError."""
    place = 0
    while place < len(message):
        tag, place = _varint(message, place)
        kind = tag & 7
        if kind == _VARINT:
            value, place = _varint(message, place)
            yield tag >> 3, value
            continue
        size = _FIXED.get(kind)
        if kind == _BYTES:
            size, place = _varint(message, place)
        if size is None or size > len(message) - place:
            raise DecodeError
        yield tag >> 3, message[place : place + size]
        place += size


def _varint(message: bytes, place: int) -> tuple[int, int]:
    """The number at a position, and the position of its end."""
    found = 0
    for shift in range(0, 70, 7):
        if place >= len(message):
            break
        found |= (message[place] & 0x7F) << shift
        place += 1
        if not message[place - 1] & 0x80:
            return found, place
    raise DecodeError
