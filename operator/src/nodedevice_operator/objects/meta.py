"""Schemas that all kinds share. Decoding skips all other fields; absent ones have the API's own defaults."""

from collections.abc import Callable, Hashable, Iterable
from typing import Any, Final, Generic, TypeVar

from msgspec import Raw, Struct, field
from nodedevice_api import names

# A field manager in managedFields. The operator's counts only with server-side apply: another operation
# under the same name is another owner to the API server.
OURS: Final = names.OPERATOR_FIELD_MANAGER
STATUS: Final = "status"

# Values that many objects share are kept once, so that thousands of nodes fit into memory: names, reasons, whole conditions. The
# number of values of a kind and their length are limited: a writer of objects could otherwise fill the memory with values of
# deleted objects.
_MOST_SHARED: Final = 4096
_LONGEST_SHARED: Final = 1024
_CHARACTERS_OF_VALUE: Final = 16
# made once: it is asked for each value of each object of a list
_COLLECTIONS: Final = (tuple, frozenset)

T = TypeVar("T")


def shared(make: Callable[..., T]) -> Callable[..., T]:
    """Wraps a constructor so that equal, small arguments return the same object. Arguments must be hashable."""
    kept: dict[tuple[Hashable, ...], T] = {}

    def made(*args: Hashable) -> T:
        found = kept.get(args)
        if found is None:
            found = make(*args)
            if _size(args) <= _LONGEST_SHARED:
                if len(kept) >= _MOST_SHARED:
                    # in one step, as large objects are decoded in threads
                    kept.clear()
                kept[args] = found
        return found

    return made


def _size(values: Iterable[Any]) -> int:
    """About how long all of that is, in characters."""
    total = 0
    for value in values:
        total += _CHARACTERS_OF_VALUE
        if isinstance(value, str):
            total += len(value)
        elif value is None or isinstance(value, int):
            continue
        elif isinstance(value, _COLLECTIONS):
            total += _size(value)
        elif slots := getattr(type(value), "__slots__", ()):
            total += _size(getattr(value, name) for name in slots)
    return total


class Schema(Struct, rename="camel", gc=False):
    """Base of all schemas: unknown fields are skipped, absent ones have defaults."""


class OwnerReference(Schema):
    kind: str = ""
    uid: str = ""


class ObjectMetadata(Schema):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = "0"


class MetadataSchema(ObjectMetadata):
    generation: int = 0
    owner_references: list[OwnerReference] = []


class Versioned(Schema):
    """Any object, and a bookmark of a watch: what all have in common."""

    metadata: ObjectMetadata = field(default_factory=ObjectMetadata)


class WatchEvent(Schema, Generic[T]):
    type: str
    object: T


# The same for an object that is decoded afterwards, depending on the type.
RawWatchEvent = WatchEvent[Raw]


class ListMetadata(Schema):
    resource_version: str = "0"
    continue_: str = field(name="continue", default="")


class ListSchema(Schema, Generic[T]):
    metadata: ListMetadata
    items: list[T] = []


class PartialObject(Schema):
    metadata: ObjectMetadata


class PartialObjectList(Schema):
    """A list in that form; an empty one has null for items."""

    metadata: ListMetadata
    items: list[PartialObject] | None = None


class ServedResource(Schema):
    name: str = ""


class ResourceList(Schema):
    resources: list[ServedResource] = []
