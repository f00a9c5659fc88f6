"""Reads fields of JSON objects. Never fails: an absent field, or one of another type, has a default. Pure."""

from collections.abc import Mapping
from typing import Any

Json = Mapping[str, Any]


def text_of(obj: Any, *path: str) -> str:
    """The text there, or ""."""
    found = value_at(obj, *path)
    return found if isinstance(found, str) else ""


def number_of(obj: Any, *path: str) -> int:
    """The whole number there, or 0."""
    found = value_at(obj, *path)
    return found if isinstance(found, int) and not isinstance(found, bool) else 0


def is_set(obj: Any, *path: str) -> bool:
    """Whether there is true."""
    return value_at(obj, *path) is True


def map_of(obj: Any, *path: str) -> Json:
    """The object there, or an empty one."""
    found = value_at(obj, *path)
    return found if isinstance(found, dict) else {}


def texts_of(obj: Any, *path: str) -> Mapping[str, str]:
    """The texts there, by name. Numbers count, as people write quantities."""
    found = map_of(obj, *path)
    return {key: str(value) for key, value in found.items() if isinstance(value, str | int | float)}


def list_of(obj: Any, *path: str) -> list[Any]:
    """The list there, or an empty one."""
    found = value_at(obj, *path)
    return found if isinstance(found, list) else []


def value_at(obj: Any, *path: str) -> Any:
    """The value there, or None."""
    for key in path:
        if not isinstance(obj, dict):
            return None
        obj = obj.get(key)
    return obj
