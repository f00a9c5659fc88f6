"""Decodes API objects into records: dataclasses whose fields name their place in the JSON. Pure.

Never fails. A field that is absent, or of another type, has its default, and unknown fields are skipped. So objects of older and
newer CRDs can be read.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from types import UnionType
from typing import Any, Final, TypeVar, get_args, get_origin

from nodedevice_kube.fields import Json, is_set, list_of, text_of, texts_of
from nodedevice_kube.interning import intern

T = TypeVar("T")
_Make = Callable[[Any], Any]
# one field: its name, its path, and its constructor
_Plan = tuple[tuple[str, tuple[str, ...], _Make], ...]
_plans: dict[Any, _Plan] = {}
# marks a value of another type than the field's
_OTHER: Final = object()
_NOTHING: Final[Mapping[str, Any]] = {}


def place(path: str = "", default: Any = "", *, by: _Make | None = None) -> Any:
    """Place a field explicitly. path: keys, joined by dots. default: a value, or the type that makes it.

    by: makes the field from the value at the path; without a path, from the whole object.
    """
    metadata = {"path": tuple(path.split(".")) if path else (), "by": by}
    factory = nothing if default is dict else default if isinstance(default, type) else None
    return field(default_factory=factory, metadata=metadata) if factory else field(default=default, metadata=metadata)


def nothing() -> Mapping[str, Any]:
    return _NOTHING


def record_of(form: type[T], obj: Any) -> T:
    """Decode a record of that form. A field without `place` is found by its name in camelCase."""
    found: dict[str, Any] = {}
    for name, path, make in _plans.get(form) or _plans.setdefault(form, _plan(form)):
        value = obj
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        if value is not None and (made := make(value)) is not _OTHER:
            found[name] = made
    return form(**found)


def _plan(form: Any) -> _Plan:
    return tuple(
        (each.name, each.metadata.get("path", (camel(each.name),)), each.metadata.get("by") or _maker(each.type))
        for each in fields(form)
    )


def camel(name: str) -> str:
    """Return lastUpdate for last_update."""
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


def _maker(kind: Any) -> _Make:
    """Return a function that makes a value of that type, or _OTHER."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is UnionType:
        one = _maker(arguments[0])
        # an empty object has no information
        return lambda value: _OTHER if value == {} else one(value)
    if origin is tuple:
        item = _maker(arguments[0])
        return lambda value: _items(item, value) if isinstance(value, list) else _OTHER
    if kind is str:
        # many objects share most texts
        return lambda value: intern(value) if type(value) is str else _OTHER
    if is_dataclass(kind):
        form: Any = kind
        return lambda value: record_of(form, value) if isinstance(value, dict) else _OTHER
    if origin is Mapping and is_dataclass(arguments[1]):
        of_type = _maker(arguments[1])
        return lambda value: {each.type: each for each in _items(of_type, value)} if isinstance(value, list) else _OTHER
    if origin is Mapping:
        return texts_of if arguments[1] is str else _exactly(dict)
    return _exactly(kind)


def _items(make: _Make, value: list[Any]) -> tuple[Any, ...]:
    return tuple(made for each in value if (made := make(each)) is not _OTHER)


def _exactly(kind: type) -> _Make:
    """A bool is not a number here."""
    return lambda value: value if type(value) is kind else _OTHER


def _owner(metadata: Json) -> str:
    owners = [each for each in list_of(metadata, "ownerReferences") if is_set(each, "controller")]
    return f"{text_of(owners[0], 'kind')}/{text_of(owners[0], 'name')}" if owners else ""


@dataclass(frozen=True, slots=True)
class Meta:
    """deleted: when its deletion was requested. owner: kind/name of its controller."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    # not interned: each change brings another one
    resource_version: str = place("resourceVersion", by=_exactly(str))
    created: str = place("creationTimestamp")
    deleted: str = place("deletionTimestamp")
    owner: str = place(by=_owner)
    labels: Mapping[str, str] = place("labels", dict)
