"""Reads fields of JSON objects. Never fails: an absent field, or one of another type, has the default. Pure."""

from collections.abc import Mapping
from typing import Any

Json = Mapping[str, Any]


def text_of(obj: Any, *path: str) -> str:
    found = value_at(obj, *path)
    return found if isinstance(found, str) else ""


def number_of(obj: Any, *path: str) -> int:
    found = value_at(obj, *path)
    return found if isinstance(found, int) and not isinstance(found, bool) else 0


def is_set(obj: Any, *path: str) -> bool:
    return value_at(obj, *path) is True


def map_of(obj: Any, *path: str) -> Json:
    found = value_at(obj, *path)
    return found if isinstance(found, dict) else {}


def texts_of(obj: Any, *path: str) -> Mapping[str, str]:
    """Numbers count as texts, as people write quantities so."""
    found = map_of(obj, *path)
    return {key: str(value) for key, value in found.items() if isinstance(value, str | int | float)}


def list_of(obj: Any, *path: str) -> list[Any]:
    found = value_at(obj, *path)
    return found if isinstance(found, list) else []


def value_at(obj: Any, *path: str) -> Any:
    for key in path:
        if not isinstance(obj, dict):
            return None
        obj = obj.get(key)
    return obj
