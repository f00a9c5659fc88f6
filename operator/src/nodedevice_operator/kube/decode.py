"""Answers of the API server, or of something before it, in their wire forms; one that has not that form is an error of ours.

An object in a list that is not understood holds up no other. It is told in the log, and taken in as one of which nothing is
known but whose it is: then what the cluster shows of it stays as it is. Sends nothing.
"""

import logging
from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from nodedevice_operator.errors import NotUnderstood
from nodedevice_operator.objects.meta import ListMetadata, PartialObject, PartialObjectList, Schema
from nodedevice_operator.objects.node import NodeList, NodeSchema
from nodedevice_operator.objects.nodedevice import NodeDeviceList, NodeDeviceSchema
from nodedevice_operator.objects.poddevice import PodDeviceList, PodDeviceSchema

log = logging.getLogger(__name__)

# What making a record fails of where a value in an object is none, such as a resource version that is no number.
VALUE_ERRORS: Final = (ValueError, ArithmeticError)
# An object among those of its kind: its name, or namespace and name; None where not even that is understood.
Key: TypeAlias = str | tuple[str, str] | None

T = TypeVar("T")
R = TypeVar("R")
Item = TypeVar("Item", NodeDeviceSchema, PodDeviceSchema)
Page = TypeVar("Page", NodeList, NodeDeviceList, PodDeviceList, PartialObjectList)


class _Parts(Schema):
    metadata: msgspec.Raw
    spec: msgspec.Raw


class _Names(Schema):
    name: str = ""
    namespace: str = ""


class _Named(Schema):
    """Any object, with nothing else of which anything could be odd."""

    metadata: _Names


class _AnyList(Schema):
    metadata: ListMetadata
    items: list[msgspec.Raw] = []


def understood(verb: str, what: str, data: bytes | msgspec.Raw, form: type[T]) -> T:
    """`data` in that form. Raises NotUnderstood."""
    try:
        return msgspec.json.decode(data, type=form)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise NotUnderstood(verb, what, f"the answer is not what an API server says ({exc})") from exc


def read(verb: str, what: str, data: bytes, form: type[T], make: Callable[[T], R]) -> R:
    """The record of the object that is the answer. Raises NotUnderstood."""
    try:
        return make(understood(verb, what, data, form))
    except VALUE_ERRORS as exc:
        raise NotUnderstood(verb, what, f"the answer has a value that is none ({exc})") from exc


def page_of(what: str, data: bytes, form: type[Page]) -> tuple[Page, frozenset[Key]]:
    """A page of a list, and which of its objects were left out of it, as they are not understood; each is told.

    Raises NotUnderstood where it is not a page.
    """
    try:
        return msgspec.json.decode(data, type=form), frozenset()
    except (msgspec.DecodeError, UnicodeDecodeError):
        whole = understood("GET", what, data, _AnyList)
    items: list[Any] = []
    left_out: set[Key] = set()
    for raw in whole.items:
        found = _listed(what, raw, form)
        if found is None:
            left_out.add(_key(raw))
        else:
            items.append(found)
    return form(metadata=whole.metadata, items=items), frozenset(left_out)


def item(kind: str, data: msgspec.Raw, form: type[Item]) -> Item | None:
    """An object; without its status where that is not understood, and None where not even that helps. Either is told."""
    try:
        return msgspec.json.decode(data, type=form)
    except msgspec.ValidationError as exc:
        tell_not_understood(kind, _name(data), exc)
    try:
        parts = msgspec.json.decode(data, type=_Parts)
        bare = msgspec.json.encode({"metadata": parts.metadata, "spec": parts.spec})
        return msgspec.json.decode(bare, type=form)
    except msgspec.ValidationError:
        return None


def tell_not_understood(kind: str, name: Any, problem: Exception) -> None:
    """Log that an object of that kind is skipped."""
    fields = {"kind": kind, "object": name, "error": str(problem)}
    log.error("cannot decode object; skipping it", extra=fields)


def _listed(what: str, raw: msgspec.Raw, form: type[Page]) -> Any:
    if form is NodeDeviceList:
        return item(what, raw, NodeDeviceSchema)
    if form is PodDeviceList:
        return item(what, raw, PodDeviceSchema)
    try:
        # a Node without its status would look like one that has lost all its capacity
        kind = NodeSchema if form is NodeList else PartialObject
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as exc:
        tell_not_understood(what, _name(raw), exc)
        return None


def _name(raw: msgspec.Raw) -> str:
    key = _key(raw)
    return key[1] if isinstance(key, tuple) else key or ""


def _key(raw: msgspec.Raw) -> Key:
    try:
        metadata = msgspec.json.decode(raw, type=_Named).metadata
    except msgspec.ValidationError:
        return None
    return key_of(metadata.name, metadata.namespace)


def key_of(name: str, namespace: str = "") -> Key:
    """Which object that is, among those of its kind."""
    return (namespace, name) if namespace else name or None
