"""Decodes responses of the API server: objects, lists and lines of a watch."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Annotated, Any, ClassVar, Final, TypeVar

import msgspec
from nodedevice_common.decoding import Undecodable, decode
from nodedevice_common.threads import in_thread_if
from nodedevice_common.undecodable_objects import log_skipped
from nodedevice_kube import decoding, list_watch
from nodedevice_kube.api_errors import Silent, refusal_of
from nodedevice_kube.list_items import Item, ListItems, identity
from nodedevice_kube.paths import Resource

log = logging.getLogger(__name__)

# The limit of one object. The API server stores 1.5 MB; as JSON with escapes of six bytes that is up to nine times as much.
MOST_OBJECT_BYTES = 16 * 1024 * 1024
# limit for decoding in the event loop: a longer object takes more than a millisecond
MOST_BYTES_IN_LOOP = 64 * 1024
# the bytes of a response between two yields to other tasks
_CHUNK_BYTES = 64 * 1024
# the size of the large parts of all objects in a list
MOST_LISTED = 24 * 1024 * 1024


class KubeMetadata(msgspec.Struct, omit_defaults=True):
    """Attribute names are the wire's, as in all objects."""

    name: str = ""
    namespace: str | None = None
    uid: str | None = None
    resourceVersion: str | None = None
    deletionTimestamp: str | None = None
    annotations: dict[str, str] | None = None


class KubeObject(msgspec.Struct, omit_defaults=True):
    """resource: the API resource of the kind; set by each kind that is requested."""

    resource: ClassVar[Resource]
    metadata: KubeMetadata = msgspec.field(default_factory=KubeMetadata)


K = TypeVar("K", bound=KubeObject)


class LargeObject(KubeObject):
    """An object of up to a megabyte: a list keeps at most MOST_LISTED of the large parts of all objects."""

    # abc does not work here: a Struct has its own metaclass.
    @property
    def octets(self) -> int:
        raise NotImplementedError  # implemented by each kind

    def lighten(self) -> None:
        raise NotImplementedError  # implemented by each kind


# -- objects and lists --------------------------------------------------------------------------------------------------


class Page(msgspec.Struct):
    """One page of a list. continue_: requests the next page; "" on the last. octets: size of the text."""

    version: str
    continue_: str
    octets: int


class _ListMetadata(msgspec.Struct):
    resourceVersion: str | None = None
    continue_: str | None = msgspec.field(name="continue", default=None)


class _Envelope(msgspec.Struct):
    """A list after its items were read."""

    items: Annotated[list[Any], msgspec.Meta(max_length=0)] | None
    metadata: _ListMetadata = msgspec.field(default_factory=_ListMetadata)


async def read_list(chunks: AsyncIterator[bytes], kind: type[Any], add: Callable[[Any], object]) -> Page:
    """Decode the objects of a page one by one as the text arrives, and call `add` with each; in a thread if it is long.

    Besides the objects kept by `add`, one at most is in memory. Raises Undecodable.
    """
    items, octets = ListItems(MOST_OBJECT_BYTES), 0
    try:
        async for chunk in chunks:
            octets += len(chunk)
            for begin in range(0, len(chunk), _CHUNK_BYTES):
                for item in items.feed(chunk[begin : begin + _CHUNK_BYTES]):
                    await in_thread_if(item.size > MOST_BYTES_IN_LOOP, partial(_add, item, kind, add))
                # data that has already arrived does not yield to other tasks
                await asyncio.sleep(0)
        envelope = items.envelope()
    except decoding.Undecodable as exc:
        raise Undecodable(exc) from exc
    found = decode(envelope, _Envelope).metadata
    return Page(found.resourceVersion or "", found.continue_ or "", octets)


def _add(item: Item, kind: type[Any], add: Callable[[Any], object]) -> None:
    """Raises Undecodable, also for an object that is too long and whose start lacks the name."""
    if item.is_whole:
        add(_decoded(item.text, kind))
        return
    problem = Undecodable(ValueError(f"it is longer than {MOST_OBJECT_BYTES // 2**20} MiB"))
    found = identity(item.text)
    if found is None:
        raise problem
    add(_by_name(KubeMetadata(*found), kind, problem))


def _decoded(content: bytes | msgspec.Raw, kind: type[K]) -> K:
    """Decode one of several objects. An object of another form is replaced if its kind has `known_by_name`. Raises Undecodable."""
    try:
        return decode(content, kind)
    except Undecodable as exc:
        return _by_name(decode(content, KubeObject).metadata, kind, exc)


def _by_name(metadata: KubeMetadata, kind: type[K], problem: Undecodable) -> K:
    """Raises the problem if the kind does not support it."""
    known_by_name = getattr(kind, "known_by_name", None)
    if known_by_name is None:
        raise problem
    log_skipped(log, kind.resource.plural, metadata.namespace or "", metadata.name, problem)
    found: K = known_by_name(metadata)
    return found


# -- watches ------------------------------------------------------------------------------------------------------------


# the type of an event whose object is to be read later, and of one whose object is known
LATER: Final = "LATER"
KNOWN: Final = "KNOWN"


class _WatchEvent(msgspec.Struct):
    type: str
    object: msgspec.Raw


async def next_line(what: str, found: AsyncIterator[bytes]) -> bytes | None:
    """The next line of a watch; None at its end. Raises Silent."""
    seconds = list_watch.SILENCE_SECONDS
    try:
        async with asyncio.timeout(seconds):
            return await anext(found, None)
    except TimeoutError as exc:
        raise Silent("watching", what, f"nothing has come for {seconds:.0f} s, not even a bookmark") from exc


class Reading:
    """Reads every object of a watch completely. The methods are called in a thread if the object is long."""

    def is_known(self, metadata: KubeMetadata) -> bool:
        """Whether a response to a write has already shown this version of the object, or a later one."""
        return False

    def skips(self, metadata: KubeMetadata, octets: int) -> bool:
        """Whether such an object is not decoded now."""
        return False

    def keep(self, found: Any) -> Any:
        """The object, reduced to the parts in use."""
        return found


EVERYTHING: Final = Reading()


def watch_event(what: str, line: bytes, kind: type[KubeObject], reading: Reading = EVERYTHING) -> tuple[str, Any]:
    """Decode a line of a watch into type and object. what: the plural of the kind, for errors.

    LATER and KNOWN have metadata alone: the object is decoded later or not at all. BOOKMARK has a version alone.
    Raises Undecodable for an invalid line, ApiError for an error from the server.
    """
    found = decode(line, _WatchEvent)
    if found.type == "ERROR":
        status = decode(found.object, dict[str, Any])
        code = status.get("code")
        raise refusal_of("watching", what, code if isinstance(code, int) else 0, status)
    # the other fields of a bookmark are empty, and some kinds do not allow that
    if found.type == "BOOKMARK":
        return found.type, decode(found.object, KubeObject)
    if found.type != "DELETED":
        known = decode(found.object, KubeObject)
        if reading.is_known(known.metadata):
            return KNOWN, known
        if reading.skips(known.metadata, len(line)):
            return LATER, known
    return found.type, reading.keep(_decoded(found.object, kind))
