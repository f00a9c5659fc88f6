"""Log messages, Events, conditions, errors and help texts use the field's words, so that people and grep find them.

Every text counts that people may read: string constants of two words and more that are no docstring, the texts of the CRDs,
and pages. The glossary is in CONTRIBUTING.md.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import yaml

_ROOT: Final = Path(__file__).parents[2]
PAGES: Final = sorted([*_ROOT.glob("*.md"), *_ROOT.glob("docs/*.md"), _ROOT / "charts/nodedevice/README.md"])
_SOURCES: Final = ("node-agent/src", "operator/src", "common/src", "proto/src")
# Words of a private language: each has a term of the field, or says nothing.
FORBIDDEN: Final = re.compile(
    r"\b(told|said|look|looks|looked|looking|anew|mend|mends|mended|mending|puts? right|left alone|who holds|what is there)\b",
    re.IGNORECASE,
)
# What a log is searched for: some log message has each of them.
SEARCHED_FOR: Final = ("retry", "reconcile", "stale", "invalid", "timeout", "unreachable", "conflict", "reconnect")
_LOG_METHODS: Final = frozenset({"debug", "info", "warning", "error", "exception", "critical"})


class Text(NamedTuple):
    where: str
    text: str


def _modules() -> Iterator[tuple[str, ast.Module]]:
    for folder in _SOURCES:
        for path in sorted((_ROOT / folder).rglob("*.py")):
            if "_pb2" not in path.name:
                yield str(path.relative_to(_ROOT)), ast.parse(path.read_text(encoding="utf-8"))


def _texts() -> Iterator[Text]:
    for name, module in _modules():
        docstrings = {id(node.value) for node in ast.walk(module) if isinstance(node, ast.Expr)}
        for node in ast.walk(module):
            match node:
                case ast.Constant(value=str(text)) if " " in text.strip() and id(node) not in docstrings:
                    yield Text(f"{name}:{node.lineno}", text)


def _log_messages() -> Iterator[Text]:
    for name, module in _modules():
        for node in ast.walk(module):
            match node:
                case ast.Call(func=ast.Attribute(attr=method), args=[ast.Constant(value=str(text)), *_]):
                    if method in _LOG_METHODS:
                        yield Text(f"{name}:{node.lineno}", text)


def _crd_texts() -> Iterator[Text]:
    for path in sorted((_ROOT / "crds").glob("*.yaml")):
        for text in _described(yaml.safe_load(path.read_text(encoding="utf-8"))):
            yield Text(str(path.relative_to(_ROOT)), text)


def _described(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            if key in ("description", "message") and isinstance(value, str):
                yield value
            else:
                yield from _described(value)
    elif isinstance(node, list):
        for value in node:
            yield from _described(value)


def test_no_text_is_in_a_private_language() -> None:
    found = [f"{text.where}: {text.text}" for text in (*_texts(), *_crd_texts()) if FORBIDDEN.search(text.text)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("word", SEARCHED_FOR)
def test_a_log_is_found_by_the_fields_word(word: str) -> None:
    stem = word.removesuffix("y").removesuffix("e")
    assert any(stem in text.text for text in _log_messages()), f"no log message has {word!r}"


def test_log_messages_are_constant() -> None:
    """A message is a constant text without values, so that it can be searched for; the values are fields."""
    odd = [text for text in _log_messages() if "%" in text.text or "{" in text.text]
    assert not odd


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_use_the_words_of_the_field(page: Path) -> None:
    lines = page.read_text(encoding="utf-8").splitlines()
    # the glossary names them
    assert [line for line in lines if FORBIDDEN.search(line) and not line.startswith("Not used: ")] == []
