"""YAML by PyYAML's C library: what a chart renders is read and written in a tenth of the time that its Python takes."""

from collections.abc import Iterable
from typing import Any

import yaml


def load(text: str) -> Any:
    """One document. Raises yaml.YAMLError."""
    return yaml.load(text, Loader=yaml.CSafeLoader)


def load_all(text: str) -> list[Any]:
    """Every document, None for one that is empty. Raises yaml.YAMLError."""
    return list(yaml.load_all(text, Loader=yaml.CSafeLoader))


def dump(document: Any) -> str:
    """One document."""
    return dump_all([document])


def dump_all(documents: Iterable[Any]) -> str:
    """One after the other."""
    return str(yaml.dump_all(documents, Dumper=yaml.CSafeDumper))
