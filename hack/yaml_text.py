"""YAML by PyYAML's C library, if available: it reads and writes a rendered chart in a tenth of the time."""

from collections.abc import Iterable
from typing import Any, Final

import yaml

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DUMPER: Final = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def load(text: str) -> Any:
    """One document. Raises yaml.YAMLError."""
    return yaml.load(text, Loader=_LOADER)


def load_all(text: str) -> list[Any]:
    """Every document, None for one that is empty. Raises yaml.YAMLError."""
    return list(yaml.load_all(text, Loader=_LOADER))


def dump(document: Any) -> str:
    """One document."""
    return dump_all([document])


def dump_all(documents: Iterable[Any]) -> str:
    """One after the other."""
    return str(yaml.dump_all(documents, Dumper=_DUMPER))
