"""The nodes of a YAML document, before texts are interpreted as numbers or null. Pure."""

from typing import Any

from msgspec import Struct


class Scalar(Struct, frozen=True):
    """tag: as written, in its long form, or "". is_plain: written without quotes, so that its text decides its type."""

    text: str
    tag: str = ""
    is_plain: bool = True


class Mapping(list[tuple[Any, Any]]):
    """Pairs of nodes, as written: a key may occur twice."""


# Scalar, Mapping, or a list of nodes
Node = Scalar | Mapping | list[Any]
