"""Decodes responses of the API server, or of something before it, into their schemas; an unexpected form is an error of ours.

An object in a list that cannot be decoded does not affect the others. It is logged, and decoded without its status if that helps:
then only its owner is known, and what the cluster shows of it stays as it is. Sends nothing.
"""

import logging
from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from nodedevice_operator.errors import InvalidResponse
from nodedevice_operator.objects.meta import ListMetadata, PartialObject, PartialObjectList, Schema
from nodedevice_operator.objects.node import NodeList, NodeSchema
from nodedevice_operator.objects.nodedevice import NodeDeviceList, NodeDeviceSchema
from nodedevice_operator.objects.poddevice import PodDeviceList, PodDeviceSchema

log = logging.getLogger(__name__)

# What a record's constructor raises for an invalid value in an object, such as a resource version that is no number.
VALUE_ERRORS: Final = (ValueError, ArithmeticError)
# An object among those of its kind: its name, or namespace and name; None if not even that can be decoded.
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
    """Any object, without any other field that could be invalid."""

    metadata: _Names


class _AnyList(Schema):
    metadata: ListMetadata
    items: list[msgspec.Raw] = []


def decode(verb: str, what: str, data: bytes | msgspec.Raw, form: type[T]) -> T:
    """`data` in that schema. Raises InvalidResponse."""
    try:
        return msgspec.json.decode(data, type=form)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise InvalidResponse(verb, what, f"the response is not what an API server sends ({exc})") from exc


def decode_record(verb: str, what: str, data: bytes, form: type[T], make: Callable[[T], R]) -> R:
    """The record of the object in a response. Raises InvalidResponse."""
    try:
        return make(decode(verb, what, data, form))
    except VALUE_ERRORS as exc:
        raise InvalidResponse(verb, what, f"the response has an invalid value ({exc})") from exc


def decode_page(what: str, data: bytes, form: type[Page]) -> tuple[Page, frozenset[Key]]:
    """A page of a list, and the keys of its objects that cannot be decoded; each is logged.

    Raises InvalidResponse if it is not a page.
    """
    try:
        return msgspec.json.decode(data, type=form), frozenset()
    except (msgspec.DecodeError, UnicodeDecodeError):
        whole = decode("GET", what, data, _AnyList)
    items: list[Any] = []
    undecoded: set[Key] = set()
    for raw in whole.items:
        found = _listed(what, raw, form)
        if found is None:
            undecoded.add(_key(raw))
        else:
            items.append(found)
    return form(metadata=whole.metadata, items=items), frozenset(undecoded)


def decode_object(kind: str, data: msgspec.Raw, form: type[Item]) -> Item | None:
    """An object; without its status if that cannot be decoded, None if not even that helps. Either is logged."""
    try:
        return msgspec.json.decode(data, type=form)
    except msgspec.ValidationError as exc:
        log_undecodable(kind, _name(data), exc)
    try:
        parts = msgspec.json.decode(data, type=_Parts)
        bare = msgspec.json.encode({"metadata": parts.metadata, "spec": parts.spec})
        return msgspec.json.decode(bare, type=form)
    except msgspec.ValidationError:
        return None


def log_undecodable(kind: str, name: Any, problem: Exception) -> None:
    """Log that an object of that kind is skipped."""
    fields = {"kind": kind, "object": name, "error": str(problem)}
    log.error("cannot decode object; skipping it", extra=fields)


def _listed(what: str, raw: msgspec.Raw, form: type[Page]) -> Any:
    if form is NodeDeviceList:
        return decode_object(what, raw, NodeDeviceSchema)
    if form is PodDeviceList:
        return decode_object(what, raw, PodDeviceSchema)
    try:
        # a Node without its status would look like one that has lost all its capacity
        kind = NodeSchema if form is NodeList else PartialObject
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as exc:
        log_undecodable(what, _name(raw), exc)
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
