"""Decodes all foreign text: responses of the API server, kubeconfigs, lines of processes, files of people.

Raises one error for every decoder. JSON that is nested deeper than any Kubernetes object is cut; YAML that deep is refused.
"""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Final

from nodedevice_kube.depth import DEEPEST, shallow

# Octets of one file. A kubeconfig of 1,000 clusters has 4 MB.
_MOST_OCTETS: Final = 16 << 20
# of a text; each of a few aliases may repeat it once
_MOST_VALUES: Final = 200_000


_NOT_PLAIN: Final = frozenset(("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:value"))


class Undecodable(Exception):
    """The text is not valid; gives the reason without a quotation, as the text may be a secret."""


def decode_json(text: bytes | str) -> Any:
    """The value, with null in place of values that are nested too deep: any tenant can write them. Raises Undecodable."""
    try:
        try:
            return json.loads(text)
        except RecursionError:
            return json.loads(shallow(text.encode() if isinstance(text, str) else text))
    except (ValueError, RecursionError, MemoryError) as exc:
        raise Undecodable(_why(exc)) from exc


def decode_yaml(text: str) -> Any:
    """The value of the only document, or None. Raises Undecodable."""
    if text.lstrip()[:1] == "{":
        try:
            return decode_json(text)
        except Undecodable:
            # flow style, which is YAML
            pass
    found = decode_documents(text)
    if len(found) > 1:
        raise Undecodable("it has several documents")
    return found[0] if found else None


def decode_documents(text: str, *, is_strict: bool = False) -> list[Any]:
    """The values of all documents but empty ones. is_strict: refuse duplicate keys, of which YAML readers keep the last.

    Raises Undecodable.
    """
    import yaml

    loader = _plain(getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    try:
        _check_size(text, loader)
        loader = _with_unique_keys(loader) if is_strict else loader
        return [each for each in yaml.load_all(text, Loader=loader) if each is not None]
    except yaml.MarkedYAMLError as exc:
        place = f" in line {exc.problem_mark.line + 1}" if exc.problem_mark else ""
        mark = exc.problem_mark
        is_tab = (
            mark is not None and text.splitlines()[mark.line : mark.line + 1] and "\t" in text.splitlines()[mark.line]
        )
        why = (
            "YAML is indented by spaces, and this has a tab"
            if is_tab and "token" in (exc.problem or "")
            else exc.problem
        )
        raise Undecodable(f"it is not YAML: {why}{place}") from exc
    except Exception as exc:
        # odd dates, empty numbers and half characters leave the library as half a dozen exceptions besides its own
        raise Undecodable(_why(exc)) from exc


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


def _why(exc: BaseException) -> str:
    if isinstance(exc, RecursionError):
        return "it is nested too deep"
    if isinstance(exc, json.JSONDecodeError):
        return f"it is not JSON: {exc.msg} in line {exc.lineno}"
    return str(exc) if isinstance(exc, _TooMuch) else "it is not YAML"


class _TooMuch(ValueError):
    pass


def _check_size(text: str, loader: type[Any]) -> None:
    """Raises _TooMuch for text deeper, or larger by its aliases, than people write."""
    import yaml

    is_open: list[str | None] = []
    # anchors of values with aliases: an alias of one would multiply them, or contain itself
    with_aliases: set[str | None] = set()
    aliases = 0
    for values, event in enumerate(_events(text, loader)):
        if isinstance(event, yaml.CollectionStartEvent):
            is_open.append(event.anchor)
        elif isinstance(event, yaml.CollectionEndEvent):
            is_open.pop()
        elif isinstance(event, yaml.AliasEvent):
            aliases += 1
            with_aliases.update(each for each in is_open if each)
            if event.anchor in with_aliases:
                raise _TooMuch("it has an alias of a node that has aliases")
        if len(is_open) > DEEPEST:
            raise _TooMuch(f"it is nested deeper than {DEEPEST} levels")
        if values > _MOST_VALUES or aliases > DEEPEST:
            raise _TooMuch("it has too many values, or aliases")


@cache
def _plain(loader: type[Any]) -> type[Any]:
    """Without times, numbers to the base of 60, and = as a value: each is a text in YAML of Kubernetes, and none is in JSON."""

    class Plain(loader):  # type: ignore[misc]  # of the C library, if it is installed
        yaml_implicit_resolvers: ClassVar = {
            first: [(tag, pattern) for tag, pattern in found if tag not in _NOT_PLAIN]
            for first, found in loader.yaml_implicit_resolvers.items()
        }

    for kind in ("int", "float"):
        tag = f"tag:yaml.org,2002:{kind}"
        Plain.add_constructor(tag, _number_or_text)
    return Plain


def _number_or_text(loader: Any, node: Any) -> Any:
    if ":" in node.value:
        return node.value
    is_int = node.tag.endswith(":int")
    return loader.construct_yaml_int(node) if is_int else loader.construct_yaml_float(node)


def _with_unique_keys(loader: type[Any]) -> type[Any]:
    class Unique(loader):  # type: ignore[misc]  # of the C library, if it is installed
        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            lines: dict[str, int] = {}
            for key in (key for key, _ in node.value if isinstance(key.value, str)):
                line = key.start_mark.line + 1
                if key.value in lines:
                    places = f"in line {lines[key.value]} and in line {line}"
                    raise _TooMuch(f"it has the key {key.value} twice, {places}: put what both have below one")
                lines[key.value] = line
            return super().construct_mapping(node, deep)

    return Unique


def _events(text: str, loader: type[Any]) -> Iterator[Any]:
    import yaml

    yield from yaml.parse(text, Loader=loader)
