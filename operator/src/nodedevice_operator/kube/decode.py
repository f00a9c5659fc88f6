"""Decodes responses of the API server, or of a proxy before it, into their schemas; an unexpected form raises an operator error.

An object in a list that cannot be decoded does not affect the others. It is logged once, and decoded without its status if that
helps: then only its owner is known, and the operator changes nothing for it. Sends nothing.
"""

import logging
from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
from nodedevice_common import decoding
from nodedevice_common.decoding import Undecodable
from nodedevice_common.undecodable_objects import log_skipped
from nodedevice_kube.api_errors import InvalidResponse

from nodedevice_operator.objects.meta import ListSchema, Schema

log = logging.getLogger(__name__)

# What a record's constructor raises for an invalid value in an object, such as a resource version that is not a number.
VALUE_ERRORS: Final = (ValueError, ArithmeticError)
# The key of an object within its kind: its name, or namespace and name; None if not even that can be decoded.
Key: TypeAlias = str | tuple[str, str] | None

T = TypeVar("T")
R = TypeVar("R")


class _Parts(Schema):
    metadata: msgspec.Raw
    spec: msgspec.Raw


class _Names(Schema):
    name: str = ""
    namespace: str = ""


class _Named(Schema):
    """Any object, without any other field that could be invalid."""

    metadata: _Names


def decode(verb: str, what: str, data: bytes | msgspec.Raw, form: type[T]) -> T:
    """`data` in that schema. Raises InvalidResponse."""
    try:
        return decoding.decode(data, form)
    except Undecodable as exc:
        raise InvalidResponse(verb, what, f"the response is not what an API server sends ({exc})") from exc


def decode_record(verb: str, what: str, data: bytes, form: type[T], make: Callable[[T], R]) -> R:
    try:
        return make(decode(verb, what, data, form))
    except VALUE_ERRORS as exc:
        raise InvalidResponse(verb, what, f"the response has an invalid value ({exc})") from exc


def decode_page(
    what: str, data: bytes, page: Any, schema: type[Any], *, needs_status: bool
) -> tuple[Any, frozenset[Key]]:
    """A page of objects, and the keys of undecodable ones, each logged. Raises InvalidResponse if it is not a page."""
    try:
        return decoding.decode(data, page), frozenset()
    except Undecodable:
        whole = decode("GET", what, data, ListSchema[msgspec.Raw])
    found = [(raw, decode_object(what, raw, schema, needs_status=needs_status)) for raw in whole.items]
    items = [item for _, item in found if item is not None]
    return page(metadata=whole.metadata, items=items), frozenset(_key(raw) for raw, item in found if item is None)


def decode_list(what: str, data: bytes, schema: type[T]) -> ListSchema[T]:
    """The items of a list or a page; undecodable ones are logged and left out. Raises InvalidResponse if it is not a list."""
    form = ListSchema[schema]  # type: ignore[valid-type]  # a form that is made of a value
    page: ListSchema[T] = decode_page(what, data, form, schema, needs_status=True)[0]
    return page


def decode_object(what: str, data: msgspec.Raw, schema: type[T], *, needs_status: bool) -> T | None:
    """An object; without its status if that cannot be decoded and is not needed. None if that does not help. Either is logged."""
    try:
        return decoding.decode(data, schema)
    except Undecodable as exc:
        log_undecodable(what, _key(data), exc)
    if needs_status:
        return None
    try:
        parts = decoding.decode(data, _Parts)
        bare = msgspec.json.encode({"metadata": parts.metadata, "spec": parts.spec})
        return decoding.decode(bare, schema)
    except Undecodable:
        return None


def log_undecodable(kind: str, key: Key, problem: Exception) -> None:
    """Log that an object of that kind is skipped, once for each object and problem."""
    namespace, name = key if isinstance(key, tuple) else ("", key or "")
    log_skipped(log, kind, namespace, name, problem)


def _key(raw: msgspec.Raw) -> Key:
    try:
        metadata = decoding.decode(raw, _Named).metadata
    except Undecodable:
        return None
    return key_of(metadata.name, metadata.namespace)


def key_of(name: str, namespace: str = "") -> Key:
    return (namespace, name) if namespace else name or None
