"""Log messages, Events, conditions, errors and help texts use the field's words, so that people and grep find them.

Every text counts that people may read: string constants of two words and more that are no docstring, the texts of the CRDs,
and pages. The glossary is in CONTRIBUTING.md.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import yaml

from tests.unit.sources import ROOT, modules, parsed, shown

PAGES: Final = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), ROOT / "charts/nodedevice/README.md"])
# Words of a private language: each has a term of the field, or says nothing.
FORBIDDEN: Final = re.compile(
    r"\b(told|said|look|looks|looked|looking|anew|mend|mends|mended|mending|puts? right|left alone|who holds|what is there)\b",
    re.IGNORECASE,
)
_LOG_METHODS: Final = frozenset({"debug", "info", "warning", "error", "exception", "critical"})


class Text(NamedTuple):
    where: str
    text: str


@cache
def _found() -> tuple[list[Text], list[Text]]:
    """All texts of the programs, and those that are logged."""
    texts: list[Text] = []
    logged: list[Text] = []
    for path in modules("node-agent", "operator", "common", "kube", "proto", "cli"):
        _read(path, texts, logged)
    return texts, logged


def _read(path: Path, texts: list[Text], logged: list[Text]) -> None:
    docstrings: set[int] = set()
    # breadth first: an expression comes before its value
    for node in ast.walk(parsed(path)):
        match node:
            case ast.Expr(value=value):
                docstrings.add(id(value))
            case ast.Constant(value=str(text)) if " " in text.strip() and id(node) not in docstrings:
                texts.append(Text(f"{shown(path)}:{node.lineno}", text))
            case ast.Call(func=ast.Attribute(attr=method), args=[ast.Constant(value=str(text)), *_]):
                if method in _LOG_METHODS:
                    logged.append(Text(f"{shown(path)}:{node.lineno}", text))


def _crd_texts() -> Iterator[Text]:
    for path in sorted((ROOT / "crds").glob("*.yaml")):
        for text in _described(yaml.safe_load(path.read_text(encoding="utf-8"))):
            yield Text(shown(path), text)


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
    found = [f"{text.where}: {text.text}" for text in (*_found()[0], *_crd_texts()) if FORBIDDEN.search(text.text)]
    assert not found, "\n".join(found)


def test_log_messages_are_constant() -> None:
    """A message is a constant text without values, so that it can be searched for; the values are fields."""
    odd = [text for text in _found()[1] if "%" in text.text or "{" in text.text]
    assert not odd


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_use_the_words_of_the_field(page: Path) -> None:
    lines = page.read_text(encoding="utf-8").splitlines()
    # the glossary names them
    assert [line for line in lines if FORBIDDEN.search(line) and not line.startswith("Not used: ")] == []
