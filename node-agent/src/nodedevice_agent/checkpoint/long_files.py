"""Decodes a kubelet's checkpoint of any length in pieces, and leaves out the longest responses of its plugins.

The kubelet keeps up to 4 MiB of a plugin's response for each container. Decoded whole, one such response takes hundreds of MiB, and
the interpreter runs no other thread meanwhile. So the file is read as the kubelet writes it: compact JSON, fields in a fixed order,
one entry and some thousand device IDs at a time. The checksum is not compared: it takes a second for each 5 MiB of responses.
Source: kubelet pkg/kubelet/cm/devicemanager/checkpoint and encoding/json, which escapes each quotation mark in a string @ 1.37.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from msgspec import Struct
from nodedevice_common.decoding import Undecodable, decode

from nodedevice_agent.checkpoint.fields import Entry, from_entry, shown_ids
from nodedevice_agent.checkpoint.format import check_consistent
from nodedevice_agent.devicemanager.records.allocations import Allocation, AllocationKey
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint, CheckpointCorrupt
from nodedevice_agent.devicemanager.resources.devices import MAX_DEVICES_OF_KUBELET

# Bytes of one response, and of all responses in a file. Responses of this agent's plugins never exceed them.
MAX_RESPONSE_BYTES: Final = 256 * 1024
MAX_RESPONSES_BYTES: Final = 8 * 1024 * 1024
_PIECE: Final = 128 * 1024
# of an entry without its response, of a name: far more than the devices of a node
_MAX_ENTRY, _MAX_NAME = 8 * 1024 * 1024, 4096
# the decoded length of a base64 text, at most
_TEXT, _OCTETS = 4, 3
_ENTRIES, _REGISTERED, _CHECKSUM = b'{"Data":{"PodDeviceEntries":', b',"RegisteredDevices":', b'},"Checksum":'
_RESPONSE, _NULL = b'"AllocResp":', b"null"
# complete strings of a list, each with its comma unless it is the last one
_STRINGS: Final = re.compile(rb'(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"(?:,|(?=\])))*+', re.DOTALL)


class KubeletFile(Struct, frozen=True):
    """unread: the size of responses that were left out; each is empty in the checkpoint. omitted: how many more registered devices
    a resource has, whose IDs were left out, as the node has too many.
    """

    checkpoint: Checkpoint
    unread: dict[AllocationKey, int] = {}
    omitted: dict[str, int] = {}


def decode_long(read: Callable[[int], bytes], before: Checkpoint | None = None) -> KubeletFile:
    """read: returns at most that many of the next octets; empty at the end. before: the last reading, whose equal values are
    reused. Raises CheckpointCorrupt.
    """
    text = _Text(read)
    before = before or Checkpoint()
    try:
        unread: dict[AllocationKey, int] = {}
        known = {allocation.key: allocation for allocation in before.allocations}
        found = _allocations(text, unread)
        allocations = tuple(known[a.key] if known.get(a.key) == a else a for a in found)
        omitted: dict[str, int] = {}
        held: dict[str, dict[str, str]] = {}
        for allocation in allocations:
            held.setdefault(allocation.resource_name, {}).update(zip(*[allocation.device_ids] * 2, strict=True))
        registered = dict(_registered(text, omitted, held, before.registered))
        text.take(_CHECKSUM)
        decode(text.until(b"}", _MAX_NAME), int)
    except Undecodable as exc:
        raise CheckpointCorrupt(f"a field is missing or of the wrong kind: {exc}") from exc
    check_consistent(allocations)
    return KubeletFile(Checkpoint(allocations, registered), unread, omitted)


def _allocations(text: "_Text", unread: dict[AllocationKey, int]) -> Iterator[Allocation]:
    """Raises Undecodable."""
    text.take(_ENTRIES)
    left = MAX_RESPONSES_BYTES
    for _ in text.items(b"[", b"]"):
        head = text.until(_RESPONSE, _MAX_ENTRY)
        text.take(_RESPONSE)
        response, size = _response(text, min(left, MAX_RESPONSE_BYTES))
        left -= len(response) * _OCTETS // _TEXT if not size else 0
        text.take(b"}")
        allocation = from_entry(decode(head + _RESPONSE + response + b"}", Entry))
        if size:
            unread[allocation.key] = size
        yield allocation


def _response(text: "_Text", most: int) -> tuple[bytes, int]:
    """The response as JSON, and the size of a response that is left out; 0 for any other."""
    if text.has(_NULL):
        return _NULL, 0
    text.take(b'"')
    found, size = text.string(-(-most // _OCTETS) * _TEXT)
    return b'"' + found + b'"', size * _OCTETS // _TEXT


def _registered(
    text: "_Text", omitted: dict[str, int], held: Mapping[str, dict[str, str]], before: Mapping[str, tuple[str, ...]]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """held: allocated IDs by resource name; their strings are used. Raises Undecodable."""
    text.take(_REGISTERED)
    left = MAX_DEVICES_OF_KUBELET
    for _ in text.items(b"{", b"}"):
        name = decode(text.until(b'":', _MAX_NAME) + b'"', str)
        text.take(b'":')
        ids, count = ((), 0) if text.has(_NULL) else _ids(text, left, held.get(name, {}))
        left = max(0, left - len(ids))
        if count > len(ids):
            omitted[name] = count - len(ids)
        yield name, before[name] if before.get(name) == ids else ids


def _ids(text: "_Text", most: int, held: dict[str, str]) -> tuple[tuple[str, ...], int]:
    """Returns a list's IDs and their number; of a longer list only the held ones. Raises Undecodable."""
    text.take(b"[")
    found: list[str] = []
    count = 0
    while not text.has(b"]"):
        more = shown_ids(decode(b"[" + text.strings().removesuffix(b",") + b"]", tuple[str, ...]))
        if count <= most < count + len(more):
            found = [i for i in found if i in held]
        count += len(more)
        found += [held.get(i, i) for i in more if count <= most or i in held]
    return tuple(found), count


class _Text:
    """The rest of a file, with a few pieces in memory. Each method raises CheckpointCorrupt for any other content."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read
        self._octets = b""
        self._at = 0

    def has(self, word: bytes) -> bool:
        """Whether it is next; then it is taken."""
        while len(self._octets) - self._at < len(word) and self._more():
            pass
        found = self._octets.startswith(word, self._at)
        self._at += len(word) if found else 0
        return found

    def take(self, word: bytes) -> None:
        if not self.has(word):
            raise CheckpointCorrupt(f"{word.decode()} is missing, so the kubelet has not written the file")

    def items(self, begin: bytes, end: bytes) -> Iterator[None]:
        """Step to each entry of the list or object that is next; none of null."""
        if self.has(_NULL):
            return
        self.take(begin)
        is_over = self.has(end)
        while not is_over:
            yield
            is_over = self.has(end)
            if not is_over:
                self.take(b",")

    def until(self, mark: bytes, most: int) -> bytes:
        """Everything before that mark, which is next then."""
        begin = 0
        while (end := self._octets.find(mark, self._at + begin)) < 0:
            begin = max(0, len(self._octets) - self._at - len(mark))
            if begin > most or not self._more():
                raise CheckpointCorrupt(f"{mark.decode()} is missing, so the kubelet has not written the file")
        found, self._at = self._octets[self._at : end], end
        return found

    def string(self, most: int) -> tuple[bytes, int]:
        """The rest of a string without escapes, or nothing and the length of a longer one. Its end is taken."""
        size, found = 0, b""
        while True:
            end = self._octets.find(b'"', self._at)
            piece = self._octets[self._at : end if end >= 0 else None]
            size += len(piece)
            found = found + piece if size <= most else b""
            self._at += len(piece)
            if end >= 0:
                self._at += 1
                return found, 0 if size <= most else size
            if not self._more():
                raise CheckpointCorrupt("the file ends within a response")

    def strings(self) -> bytes:
        """The complete strings of a list so far, with the commas between them; at least one."""
        most = _PIECE
        while True:
            match = _STRINGS.match(self._octets, self._at, self._at + most)
            if match is not None and match.end() > self._at:
                self._at = match.end()
                return match.group()
            is_whole = len(self._octets) - self._at >= most
            if most > _MAX_ENTRY if is_whole else not self._more():
                raise CheckpointCorrupt("a list of device IDs is invalid, or the file ends within it")
            most *= 2 if is_whole else 1

    def _more(self) -> bool:
        piece = self._read(_PIECE)
        self._octets, self._at = self._octets[self._at :] + piece, 0
        return bool(piece)
