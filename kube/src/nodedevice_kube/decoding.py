"""Decodes all foreign text: responses of the API server, kubeconfigs, lines of processes, files of people.

Raises one error for every decoder. JSON that is nested deeper than any Kubernetes object is cut; such YAML is refused.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Final

from nodedevice_kube.depth import DEEPEST, shallow

# Octets of one file. A kubeconfig of 1,000 clusters has 4 MB.
_MOST_OCTETS: Final = 16 << 20
# of a text, aliases included
_MOST_VALUES: Final = 200_000


_NOT_PLAIN: Final = frozenset(("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:value"))


class TooLarge(ValueError):
    """Valid text that people do not write. The reason quotes no value."""


class Undecodable(Exception):
    """The text is invalid. The reason quotes nothing, as the text may be a secret."""


def decode_json(text: bytes | str) -> Any:
    """Return the value, with null in place of values that are nested too deep: any tenant can write them. Raises Undecodable."""
    try:
        try:
            return json.loads(text)
        except RecursionError:
            return json.loads(shallow(text.encode() if isinstance(text, str) else text))
    except (ValueError, RecursionError, MemoryError) as exc:
        raise Undecodable(_why(exc)) from exc


def decode_yaml(text: str) -> Any:
    """Return the value of the only document, or None. Raises Undecodable."""
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
    """Return the values of all non-empty documents. is_strict: refuse duplicate keys; YAML readers keep the last one.

    Raises Undecodable.
    """
    import yaml

    loader = _plain(getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    try:
        check_size(text, loader, _MOST_VALUES)
        loader = with_unique_keys(loader) if is_strict else loader
        return [each for each in yaml.load_all(text, Loader=loader) if each is not None]
    except yaml.MarkedYAMLError as exc:
        why, place, mark = exc.problem or "", "", exc.problem_mark
        if mark:
            place = f" in line {mark.line + 1}"
            if "token" in why and "\t" in "".join(text.splitlines()[mark.line : mark.line + 1]):
                why = "YAML is indented by spaces, and this has a tab"
        raise Undecodable(f"it is not YAML: {why}{place}") from exc
    except Exception as exc:
        # Odd dates, empty numbers and half characters cause half a dozen other exceptions.
        raise Undecodable(_why(exc)) from exc


def read_text(path: Path) -> str:
    """Raises Undecodable for a file that cannot be read, is too large, or is not UTF-8."""
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_OCTETS + 1)
        if len(content) > _MOST_OCTETS:
            raise Undecodable(f"it has more than {_MOST_OCTETS >> 20} MiB")
        return content.decode("utf-8-sig")
    except OSError as exc:
        raise Undecodable(exc.strerror or str(exc)) from exc
    except ValueError as exc:
        raise Undecodable("it is not UTF-8 text") from exc


def _why(exc: BaseException) -> str:
    if isinstance(exc, RecursionError):
        return "it is nested too deep"
    if isinstance(exc, json.JSONDecodeError):
        return f"it is not JSON: {exc.msg} in line {exc.lineno}"
    return str(exc) if isinstance(exc, TooLarge) else "it is not YAML"


def check_size(text: bytes | str, loader: type[Any], most: int) -> None:
    """Raises ValueError for text that is deeper, or has more values, than people write; an alias counts as its values.

    A YAML library calls itself for each level until its stack overflows, and a few aliases of aliases are billions of values.
    Invalid YAML raises yaml.YAMLError.
    """
    import yaml

    # height and number of values, by anchor, and of each open collection
    known: dict[str, tuple[int, int]] = {}
    is_open: list[tuple[str | None, int, int]] = [(None, 0, 0)]
    for event in yaml.parse(text, Loader=loader):
        match event:
            case yaml.CollectionStartEvent():
                is_open.append((event.anchor, 0, 1))
                if len(is_open) > DEEPEST + 1:
                    raise TooLarge(f"it is nested deeper than {DEEPEST} levels")
                continue
            case yaml.CollectionEndEvent():
                anchor, height, count = is_open.pop()
                height += 1
            case yaml.ScalarEvent():
                anchor, height, count = event.anchor, 0, 1
            case yaml.AliasEvent():
                if any(event.anchor == each for each, _, _ in is_open):
                    raise TooLarge("it has an alias that holds itself")
                # the library reports an unknown anchor
                anchor, (height, count) = None, known.get(event.anchor or "", (0, 1))
            case _:
                continue
        if anchor is not None:
            known[anchor] = (height, count)
        outer, highest, before = is_open[-1]
        is_open[-1] = (outer, max(highest, height), before + count)
        if len(is_open) - 1 + height > DEEPEST:
            raise TooLarge(f"it is nested deeper than {DEEPEST} levels, with its aliases")
        if before + count > most:
            raise TooLarge(f"it has more than {most} values, aliases included")


@cache
def _plain(loader: type[Any]) -> type[Any]:
    """Read times, numbers to the base of 60, and = as texts, as Kubernetes does."""

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


def with_unique_keys(loader: type[Any]) -> type[Any]:
    """Return the loader, which then raises TooLarge for a duplicate key: YAML readers keep the last one."""

    class Unique(loader):  # type: ignore[misc]  # of the C library, if it is installed
        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            lines: dict[str, int] = {}
            for key in (key for key, _ in node.value if isinstance(key.value, str)):
                line = key.start_mark.line + 1
                if key.value in lines:
                    places = f"in line {lines[key.value]} and in line {line}"
                    raise TooLarge(f"it has the key {key.value} twice, {places}: put what both have below one")
                lines[key.value] = line
            return super().construct_mapping(node, deep)

    return Unique
