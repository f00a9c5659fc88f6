"""Answers of the API server, or of something before it, in their wire forms; one that has not that form is an error of ours.

An object in a list that is not understood holds up no other. It is told in the log, and taken in as one of which nothing is
known but whose it is: then what the cluster shows of it stays as it is. Sends nothing.
"""

import logging
from typing import Any, TypeVar

import msgspec

from nodedevice_operator.edges import wire_forms
from nodedevice_operator.errors import NotUnderstood

log = logging.getLogger(__name__)

T = TypeVar("T")
Item = TypeVar("Item", wire_forms.NodeDevice, wire_forms.PodDevice)
Page = TypeVar(
    "Page", wire_forms.NodeList, wire_forms.NodeDeviceList, wire_forms.PodDeviceList, wire_forms.PartialObjectList
)


class _Parts(wire_forms.Wire):
    metadata: msgspec.Raw
    spec: msgspec.Raw


class _AnyList(wire_forms.Wire):
    metadata: wire_forms.ListMetadata
    items: list[msgspec.Raw] = []


def understood(verb: str, what: str, data: bytes | msgspec.Raw, form: type[T]) -> T:
    """`data` in that form. Raises NotUnderstood."""
    try:
        return msgspec.json.decode(data, type=form)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise NotUnderstood(verb, what, f"the answer is not what an API server says ({exc})") from exc


def page_of(what: str, data: bytes, form: type[Page]) -> Page:
    """A page of a list. Raises NotUnderstood where it is not one; of its objects, those that are not understood are told."""
    try:
        return msgspec.json.decode(data, type=form)
    except (msgspec.DecodeError, UnicodeDecodeError):
        whole = understood("GET", what, data, _AnyList)
    items: Any = [item for raw in whole.items if (item := _listed(what, raw, form)) is not None]
    return form(metadata=whole.metadata, items=items)


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


def tell_not_understood(kind: str, name: Any, problem: msgspec.ValidationError) -> None:
    """Log that an object of that kind is left alone."""
    fields = {"kind": kind, "object": name, "problem": str(problem)}
    log.error("object is not understood, and left alone", extra=fields)


def _listed(what: str, raw: msgspec.Raw, form: type[Page]) -> Any:
    if form is wire_forms.NodeDeviceList:
        return item(what, raw, wire_forms.NodeDevice)
    if form is wire_forms.PodDeviceList:
        return item(what, raw, wire_forms.PodDevice)
    try:
        # a Node without its status would look like one that has lost all its capacity
        kind = wire_forms.Node if form is wire_forms.NodeList else wire_forms.PartialObject
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as exc:
        tell_not_understood(what, _name(raw), exc)
        return None


def _name(raw: msgspec.Raw) -> str:
    try:
        return msgspec.json.decode(raw, type=wire_forms.Versioned).metadata.name
    except msgspec.ValidationError:
        return ""
