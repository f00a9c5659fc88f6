"""Chooses mutants, and records their results so far and the equivalent ones, which change nothing that can be noticed.

Reads and writes the results, from which an interrupted run resumes. Reads the list of equivalent mutants and the tests of results.
"""

import hashlib
import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeVar

REQUIRED_SHARE: Final = 0.95
EQUIVALENT: Final = "equivalent"
SURVIVED: Final = "survived"
UNREACHED: Final = "unreached"
# by the type check
REFUSED: Final = "refused"
# waiting callers notice an endless mutant
_GOOD: Final = ("killed", "timeout", REFUSED, EQUIVALENT)
# the name of the only test in the class of a state machine, which its file does not contain
_OF_A_STATE_MACHINE: Final = "runTest"


class Change(Protocol):
    """The attributes of a mutant that are used here."""

    @property
    def id(self) -> str: ...
    @property
    def file(self) -> str: ...
    @property
    def function(self) -> str: ...
    @property
    def before(self) -> str: ...
    @property
    def after(self) -> str: ...


_AnyChange = TypeVar("_AnyChange", bound=Change)


class Place(NamedTuple):
    """The line of a change in the list of equivalent mutants."""

    file: str
    function: str
    before: str
    after: str

    @classmethod
    def of(cls, change: Change) -> "Place":
        return cls(change.file, change.function, change.before, change.after)


@dataclass(frozen=True)
class Result:
    """word: killed, survived, timeout, unreached, refused, equivalent. test: the first that failed. tests: a digest of
    all tests.
    """

    id: str
    word: str
    test: str
    seconds: float
    tests: str


def sample(mutants: Iterable[_AnyChange], count: int, seed: int) -> list[_AnyChange]:
    """`count` of them by seed. A change of the code replaces the mutants of that code; a higher count adds to the
    others.
    """
    return sorted(mutants, key=lambda mutant: hashlib.sha256(f"{seed} {mutant.id}".encode()).digest())[:count]


def equivalents(file: Path) -> dict[Place, str]:
    """Reasons by place. Raises ValueError naming the incomplete entry."""
    found: dict[Place, str] = {}
    for number, entry in enumerate(tomllib.loads(file.read_text(encoding="utf-8")).get(EQUIVALENT, []), 1):
        if set(entry) != {*Place._fields, "reason"} or not all(
            isinstance(text, str) and text for text in entry.values()
        ):
            raise ValueError(
                f"{file}: entry {number} needs {', '.join(Place._fields)} and reason, each a text: {entry}"
            )
        found[Place(*(entry[name] for name in Place._fields))] = entry["reason"]
    return found


class Results:
    """One line of JSON for each mutant tried; the last line of a mutant counts. root: of the tests."""

    def __init__(self, file: Path, root: Path) -> None:
        self._file, self._root = file, root
        self._by_id: dict[str, Result] = {}
        if file.exists():
            for line in file.read_text().splitlines():
                found = Result(**json.loads(line))
                self._by_id[found.id] = found

    def find(self, key: str, tests: str) -> Result | None:
        """None: to be tried. Other tests may kill a survivor. A killed mutant stays killed while the test that failed exists."""
        found = self._by_id.get(key)
        if found is None or found.tests == tests or found.word == REFUSED:
            return found
        return found if found.word in _GOOD and exists(self._root, found.test) else None

    def add(self, result: Result) -> None:
        self._by_id[result.id] = result
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("a") as out:
            out.write(json.dumps(asdict(result)) + "\n")


def exists(root: Path, test: str) -> bool:
    """Whether the file of a test, such as `tests/unit/test_x.py::TestX::test_x[1]`, still has its name."""
    names = [name for name in test.partition("[")[0].split("::") if name != _OF_A_STATE_MACHINE]
    file = root / names[0]
    return len(names) > 1 and file.is_file() and re.search(rf"\b{names[-1]}\b", file.read_text()) is not None


def by_part(found: Sequence[tuple[Change, str]], parts: Mapping[str, tuple[str, ...]]) -> dict[str, list[str]]:
    """The words of each part (the first prefixes of its files' paths), without empty parts; then of all together."""
    words = {
        part: [word for mutant, word in found if mutant.file.startswith(prefixes)]
        for part, prefixes in (*parts.items(), ("all", ("",)))
    }
    return {part: each for part, each in words.items() if each}


def table(words_by_part: Mapping[str, Sequence[str]]) -> str:
    columns = ("killed", "timeout", REFUSED, EQUIVALENT, SURVIVED, UNREACHED)
    lines = [
        "| part | mutants | " + " | ".join(columns) + " | noticed or equivalent |",
        "|---" * (len(columns) + 3) + "|",
    ]
    for part, words in words_by_part.items():
        counts = " | ".join(str(words.count(word)) for word in columns)
        lines.append(f"| {part} | {len(words)} | {counts} | {100 * share(words):.1f} % |")
    return "\n".join(lines)


def share(words: Sequence[str]) -> float:
    """Share of killed, endless, refused or equivalent; 0 to 1, 1 without any."""
    return sum(word in _GOOD for word in words) / len(words) if words else 1.0
