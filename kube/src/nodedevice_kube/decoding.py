"""Decodes files and JSON that others wrote. Raises one error, bounds size and depth, and never quotes the content.

Source of the depth: kube-apiserver accepts 10,000 levels; no Kubernetes object that this project reads has more than a dozen.
"""

import json
from pathlib import Path
from typing import Any, Final

DEEPEST: Final = 64
# The most values of a YAML document, and the most aliases.
_MOST_VALUES: Final = 200_000
# Octets of one file. A kubeconfig of 1,000 clusters has 4 MB.
_MOST_OCTETS: Final = 16 << 20


class Undecodable(Exception):
    """The content has another form than expected; says why without quoting it, as it may be a secret."""


def read_text(path: Path) -> str:
    """The file's text. Raises Undecodable for a file that cannot be read, is too large, or is not UTF-8."""
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_OCTETS + 1)
        if len(content) > _MOST_OCTETS:
            raise Undecodable(f"it has more than {_MOST_OCTETS >> 20} MiB")
        return content.decode("utf-8-sig")
    except OSError as exc:
        raise Undecodable(exc.strerror or str(exc)) from exc
    except ValueError as exc:
        raise Undecodable("it is not text in UTF-8") from exc


def decode_json(text: bytes | str) -> Any:
    """The value. Raises Undecodable."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as exc:
        raise Undecodable(f"it is not JSON: {exc.msg} in line {exc.lineno}") from exc
    except RecursionError as exc:
        raise Undecodable("it is nested too deep") from exc
    except (ValueError, MemoryError) as exc:
        raise Undecodable("it is not JSON") from exc


def decode_yaml(text: str) -> Any:
    """The value of the one document; None if there is none. Raises Undecodable."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _check_size(yaml, text, loader)
        documents = [document for document in yaml.load_all(text, Loader=loader) if document is not None]
    except Undecodable:
        raise
    except yaml.MarkedYAMLError as exc:
        line = f" in line {exc.problem_mark.line + 1}" if exc.problem_mark else ""
        raise Undecodable(f"it is not YAML: {exc.problem}{line}") from exc
    except Exception as exc:
        # Invalid dates, empty numbers and lone surrogates make the library raise half a dozen other exceptions.
        raise Undecodable("it is not YAML") from exc
    if len(documents) > 1:
        raise Undecodable("it has several documents")
    return documents[0] if documents else None


def _check_size(yaml: Any, text: str, loader: type[Any]) -> None:
    """Raises Undecodable for a document that is deeper or larger, also by its aliases, than any that people write.

    libyaml recurses once per level until the thread's stack overflows, and a few nested aliases expand to billions of values.
    """
    open_anchors: list[str | None] = []
    anchors_with_aliases: set[str] = set()
    aliases = 0
    for values, event in enumerate(yaml.parse(text, Loader=loader)):
        if isinstance(event, yaml.CollectionStartEvent):
            open_anchors.append(event.anchor)
        elif isinstance(event, yaml.CollectionEndEvent):
            open_anchors.pop()
        elif isinstance(event, yaml.AliasEvent):
            aliases += 1
            anchors_with_aliases.update(anchor for anchor in open_anchors if anchor)
            if event.anchor in anchors_with_aliases:
                raise Undecodable("it has an alias of a value that has aliases")
        if len(open_anchors) > DEEPEST:
            raise Undecodable(f"it is nested deeper than {DEEPEST} levels")
        if values > _MOST_VALUES or aliases > DEEPEST:
            raise Undecodable("it has too many values, or aliases")
