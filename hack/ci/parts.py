"""Reads parts.toml: the gate, the parts, and the turn of each part.

Needs only the standard library: `.ci/run` asks for the part's name before any package is installed.
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
_FILE: Final = Path(__file__).with_name("parts.toml")
# the lane of the gate that needs root and a machine that can be a node
REAL_NODE: Final = "real-node"
CONTROL_PLANE: Final = "control-plane"


@dataclass(frozen=True)
class Lane:
    """One run of pytest (tests: paths or node IDs; only: a marker expression), or of make (make: targets and variables).

    again: its tests also belong to the gate or to another part. programs: names of programs to build first;
    CONTROL_PLANE stands for all programs of a control plane.
    """

    name: str
    tests: tuple[str, ...] = ()
    make: tuple[str, ...] = ()
    only: str = ""
    again: bool = False
    env: Mapping[str, str] = field(default_factory=dict)
    programs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Part:
    """Lanes that run side by side. seconds: duration on two cores; 0: not measured."""

    name: str
    lanes: tuple[Lane, ...]
    seconds: int = 0


@dataclass(frozen=True)
class Parts:
    """gate: without the real node. only_in_everything: paths of tests outside all parts, with the part that runs them.

    releases: lanes by the version of Kubernetes.
    """

    gate: Part
    real_node: Lane
    parts: Mapping[str, Part]
    everything: Part
    only_in_everything: tuple[str, ...]
    releases: Mapping[str, tuple[Lane, ...]]


def read(file: Path = _FILE) -> Parts:
    """Raises OSError, tomllib.TOMLDecodeError, TypeError (an unknown key), KeyError (a table that is not there)."""
    found = tomllib.loads(file.read_text(encoding="utf-8"))
    lanes = {name: _lane(name, table) for name, table in found["gate"].items()}
    real_node = lanes.pop(REAL_NODE)
    parts = {name: _part(name, table) for name, table in found["part"].items()}
    only = tuple(found["everything"].pop("tests"))
    releases = _releases(lanes, real_node, **found["releases"])
    gate = Part("gate", tuple(lanes.values()))
    return Parts(gate, real_node, parts, _part("everything", found["everything"]), only, releases)


def _releases(
    gate: Mapping[str, Lane],
    on_a_real_node: Lane,
    *,
    versions: Sequence[str],
    lanes: Sequence[str],
    tests: Sequence[str],
    real_node: Sequence[str],
) -> dict[str, tuple[Lane, ...]]:
    """The lanes by version; lanes on a real node come first, as they take longest."""
    others = Lane("others", tuple(tests), again=True, programs=(CONTROL_PLANE,))
    each = (*(gate[name] for name in lanes), others)
    return {version: (on_a_real_node, *each) if version in real_node else each for version in versions}


def _part(name: str, table: dict[str, Any]) -> Part:
    env = table.get("env", {})
    lanes = table["lanes"]
    names = [name] if len(lanes) == 1 else [f"{name}-{number}" for number in range(1, len(lanes) + 1)]
    return Part(
        name,
        tuple(_lane(each, {"env": env, **lane}) for each, lane in zip(names, lanes, strict=True)),
        table.get("seconds", 0),
    )


def _lane(name: str, table: dict[str, Any]) -> Lane:
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
    return Lane(name, **values)


def turn(names: Sequence[str], commits: int) -> str:
    """The part whose turn it is after this number of commits (or days)."""
    return names[commits % len(names)]


def failing(text: str) -> list[str]:
    """Names of parts that fail on main: a line each; `#` starts a comment."""
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return [line for line in lines if line]


def gate_files(parts: Parts, root: Path = ROOT) -> set[Path]:
    """Test files that the gate runs, without the tests of the real node."""
    return set(files_of(parts.gate.lanes, root))


def files_of(lanes: Sequence[Lane], root: Path = ROOT) -> Iterator[Path]:
    """Test files that belong to these lanes. Raises FileNotFoundError for a missing path."""
    for lane in lanes:
        for path in () if lane.again else lane.tests:
            yield from files_below(root / path)


def files_below(path: Path) -> Iterator[Path]:
    """A file, or all files of tests below a folder. Raises FileNotFoundError."""
    if not path.exists():
        raise FileNotFoundError(path)
    yield from sorted(path.rglob("test_*.py")) if path.is_dir() else [path]
