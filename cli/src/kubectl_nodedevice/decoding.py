"""The one entrance for what others have written: answers of the API server, kubeconfigs, lines of processes, files of people.

Raises one error, whatever a decoder raises, and takes nothing that is nested deeper than any object of Kubernetes is.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

# as the API server has it; ours has nothing of more than a dozen levels
DEEPEST: Final = 64
# of a text; each of a few aliases may repeat it once
_MOST_VALUES: Final = 200_000


class Undecodable(Exception):
    """The text is none of what was expected; says why, and quotes nothing of it, as it may be a secret."""


def decode_json(text: bytes | str) -> Any:
    """The value. Raises Undecodable."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError, MemoryError) as exc:
        raise Undecodable(_why(exc)) from exc


def decode_yaml(text: str) -> Any:
    """The value of the one document, None where there is none. Raises Undecodable."""
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


def decode_documents(text: str) -> list[Any]:
    """The values of all documents but empty ones. Raises Undecodable."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _check_size(text, loader)
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
    """The file. Raises Undecodable for one that cannot be read, or is no text."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as exc:
        raise Undecodable(exc.strerror or str(exc)) from exc
    except ValueError as exc:
        raise Undecodable("it is no text in UTF-8") from exc


def _why(exc: BaseException) -> str:
    if isinstance(exc, RecursionError):
        return "it is nested too deep"
    if isinstance(exc, json.JSONDecodeError):
        return f"it is not JSON: {exc.msg} in line {exc.lineno}"
    return str(exc) if isinstance(exc, _TooMuch) else "it is not YAML"


class _TooMuch(ValueError):
    pass


def _check_size(text: str, loader: type[Any]) -> None:
    """Raises _TooMuch for what is deeper, or by its aliases more, than anything that people write."""
    import yaml

    is_open: list[str | None] = []
    # anchors of what has aliases in it: an alias of it would be more than it seems, or hold itself
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
                raise _TooMuch("it has an alias of what has aliases")
        if len(is_open) > DEEPEST:
            raise _TooMuch(f"it is nested deeper than {DEEPEST} levels")
        if values > _MOST_VALUES or aliases > DEEPEST:
            raise _TooMuch("it has too many values, or aliases")


def _events(text: str, loader: type[Any]) -> Iterator[Any]:
    import yaml

    yield from yaml.parse(text, Loader=loader)
