"""Schemas that all kinds share: metadata, lists, watch events, and the API server's Status.

Decoding skips all other fields. Absent fields have the API's own defaults.
"""

from typing import Generic, TypeVar

from msgspec import Raw, Struct, field

T = TypeVar("T")


class Schema(Struct, rename="camel", gc=False):
    """Base of all schemas: unknown fields are skipped, absent ones have defaults."""


class OwnerReference(Schema):
    kind: str = ""
    uid: str = ""


class MetadataSchema(Schema):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = "0"
    generation: int = 0
    owner_references: list[OwnerReference] = []


class Versioned(Schema):
    """Any object, and a bookmark of a watch: what all have in common."""

    metadata: MetadataSchema = field(default_factory=MetadataSchema)


class WatchEvent(Schema, Generic[T]):
    """A line of a watch, decoded with its object."""

    type: str
    object: T


# The same for an object that is decoded afterwards, depending on the type.
RawWatchEvent = WatchEvent[Raw]


class ListMetadata(Schema):
    resource_version: str = "0"
    continue_: str = field(name="continue", default="")


class ObjectMetadata(Schema):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = "0"


class PartialObject(Schema):
    """Any object, asked for by its metadata alone."""

    metadata: ObjectMetadata


class PartialObjectList(Schema):
    """A list in that form; an empty one has null for items."""

    metadata: ListMetadata
    items: list[PartialObject] | None = None


class Cause(Schema):
    reason: str = ""
    message: str = ""
    field: str = ""


class Details(Schema):
    causes: list[Cause] = []
    retry_after_seconds: float | None = None


class Status(Schema):
    """What the API server answers instead of an object."""

    message: str = ""
    reason: str = ""
    details: Details = field(default_factory=Details)


class ServedResource(Schema):
    name: str = ""


class ResourceList(Schema):
    """The kinds of one group and version."""

    resources: list[ServedResource] = []
