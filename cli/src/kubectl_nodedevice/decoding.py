"""The one entrance for what others have written: answers of the API server, kubeconfigs, lines of processes, files of people.

Raises one error, whatever a decoder raises, and takes nothing that is nested deeper than any object of Kubernetes is.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

# as the API server has it; ours has nothing of more than a dozen levels
DEEPEST: Final = 64
# values, with what aliases repeat
_MOST_VALUES: Final = 1_000_000


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
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _check_size(text, loader)
        return yaml.load(text, Loader=loader)
    except yaml.MarkedYAMLError as exc:
        place = f" in line {exc.problem_mark.line + 1}" if exc.problem_mark else ""
        raise Undecodable(f"it is not YAML: {exc.problem}{place}") from exc
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
    """Raises _TooMuch for what aliases make bigger, or levels deeper, than anything that people write."""
    import yaml

    depth, aliases = 0, 0
    for values, event in enumerate(_events(text, loader)):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.AliasEvent):
            aliases += 1
        if depth > DEEPEST:
            raise _TooMuch(f"it is nested deeper than {DEEPEST} levels")
        # aliases of aliases repeat at most so often what the text has; nobody writes more than a few
        if values > _MOST_VALUES or aliases > DEEPEST:
            raise _TooMuch("it has too many values, or aliases")


def _events(text: str, loader: type[Any]) -> Iterator[Any]:
    import yaml

    yield from yaml.parse(text, Loader=loader)
