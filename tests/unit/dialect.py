"""Counts turns of phrase that make a sentence hard to read, in Python, Go and Markdown.

What counts as text: docstrings, comments, string constants of three words and more, and pages. Code blocks of pages do not count.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

MARKS: Final = {
    "answer": r"answer(?:s|ed|ing)?",
    "where there is": r"where (?:there|it|none|nothing|no|that|they)\b",
    "nobody, somebody": r"(?:no|some)body",
    "those that, of which": r"those (?:that|which|who|of)|(?:of|to|by|from) (?:which|whom|whose)|that which",
    "whoever, whatever": r"(?:who|what)ever",
    "beside": r"beside",
    "is no": r"(?:is|are|was|were) (?:no|none|nothing)\b",
    "as it is": r"as (?:it|they|that|this|each|he|who) (?:is|are|was|were|has|have|had|does|do)\b",
    "too at the end": r", too(?=[.,;:)]|$)",
    "what there is": r"what (?:there|it|is|are|was|has|have|they|he|nothing|no)\b",
    "given out, taken back": r"(?:give|gives|gave|given|hand|handed) out|t(?:ake|akes|aken|ook) back|h(?:old|olds|eld) up",
    "tell, say, look": r"(?:tell|tells|told|said|look|looks|looked|looking|anew|mend\w*)",
    "fragment": r"(?<![^.!?:]\s)(?<![^\s.!?:])(?:Of|To|By) (?:a|an|the|those|each|all|one|which|whom|what)\b",
}
_PATTERNS: Final = {
    name: re.compile(rf"(?<![\w-])(?:{mark})(?![\w-])", re.IGNORECASE if name != "fragment" else 0)
    for name, mark in MARKS.items()
}
_PATTERNS["too at the end"] = re.compile(MARKS["too at the end"], re.MULTILINE)
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z'-]*")
_FENCED: Final = re.compile(r"^( *)```.*?^\1```", re.MULTILINE | re.DOTALL)
_GO: Final = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"', re.DOTALL)
_COMMENT: Final = re.compile(r"(?:^|\s)#(.*)$", re.MULTILINE)
_SKIPPED: Final = ("_pb2", "/vendor/", "/tests/", "/test/", "_test.go", "/generated/", "zz_generated", ".pb.go")


def texts(path: Path) -> Iterator[str]:
    """The texts of one file."""
    content = path.read_text(encoding="utf-8", errors="replace")
    match path.suffix:
        case ".py":
            yield from _of_python(content)
        case ".go":
            yield from (text for text in _GO.findall(content) if len(_WORD.findall(text)) > 2)
        case ".md":
            yield _FENCED.sub("", content)


def _of_python(content: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(content)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value.split()) > 2:
            yield node.value
    yield from _COMMENT.findall(content)


def files(folder: Path) -> list[Path]:
    """Those with texts below a folder, without tests and generated code."""
    paths = [folder] if folder.is_file() else sorted(folder.rglob("*"))
    return [path for path in paths if path.is_file() and not any(part in str(path) for part in _SKIPPED)]


def count(paths: Iterable[Path]) -> tuple[int, Counter[str]]:
    """The number of words, and how often each mark occurs."""
    words, found = 0, Counter[str]()
    for path in paths:
        for text in texts(path):
            words += len(_WORD.findall(text))
            found.update({name: len(pattern.findall(text)) for name, pattern in _PATTERNS.items()})
    return words, found
