"""Wherever input of others enters, the turns of the event loop are measured with the largest that is accepted, or it says why not.

What is measured runs in tests/largest; here is that nothing is forgotten.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.largest.entrances import MEASURED
from tests.largest.run import PROGRAMS
from tests.unit.sources import ROOT, parsed

AGENT, OPERATOR = ROOT / "node-agent/src/nodedevice_agent", ROOT / "operator/src/nodedevice_operator"
_WATCH = {"synced", "updated", "deleted"}


def classes(folder: Path) -> Iterator[tuple[str, ast.ClassDef]]:
    """With the file of each."""
    for path in sorted(folder.rglob("*.py")):
        for found in ast.walk(parsed(path)):
            if isinstance(found, ast.ClassDef):
                yield path.relative_to(folder).as_posix(), found


def methods(found: ast.ClassDef) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [each for each in found.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]


def of_agent() -> Iterator[str]:
    for file, found in classes(AGENT):
        names = {each.name for each in methods(found)}
        if names >= _WATCH or ("pods_read" in names and found.name != "Subscriber"):
            yield f"{file} {found.name}"
        for each in methods(found):
            is_rpc = isinstance(each, ast.AsyncFunctionDef) and each.name[0].isupper()
            is_call = file == "deviceplugin/connection.py" and found.name == "PluginConnection"
            if is_rpc or (is_call and isinstance(each, ast.AsyncFunctionDef) and not each.name.startswith("_")):
                yield f"{file} {each.name}"
            if found.name == "Session" and each.name == "_methods":
                yield from (f"{file} {name}" for name in keys_of(each))


def keys_of(function: ast.AST) -> Iterator[str]:
    for found in ast.walk(function):
        if isinstance(found, ast.Dict):
            yield from (str(key.value) for key in found.keys if isinstance(key, ast.Constant))


def kinds(folder: Path) -> Iterator[str]:
    """Those that are watched, or listed."""
    for path in sorted(folder.rglob("*.py")):
        for found in parsed(path).body:
            name = getattr(found, "name", "") or ast.unparse(getattr(found, "target", ast.Constant("")))
            calls = [each for each in ast.walk(found) if isinstance(each, ast.Call)]
            if any(ast.unparse(call.func) == "Kind" for call in calls):
                yield f"{path.relative_to(OPERATOR).as_posix()} {name}"


def of_operator() -> Iterator[str]:
    yield from (each for each in kinds(OPERATOR) if not each.startswith("extender/"))


def of_extender() -> Iterator[str]:
    yield from kinds(OPERATOR / "extender")
    for file, found in classes(OPERATOR / "extender"):
        for each in methods(found):
            if found.name == "Verbs" and each.name == "by_name":
                yield from (f"extender/{file} {name}" for name in keys_of(each))


@pytest.mark.parametrize(
    ("program", "found"), [("agent", of_agent), ("operator", of_operator), ("extender", of_extender)]
)
def test_each_entrance_is_measured_or_is_small(program: str, found: object) -> None:
    assert callable(found)
    assert sorted(set(found())) == sorted(MEASURED[program])


@pytest.mark.parametrize("program", PROGRAMS)
def test_each_scenario_is_of_an_entrance(program: str) -> None:
    named = {name for scenarios in MEASURED[program].values() if not isinstance(scenarios, str) for name in scenarios}
    assert {scenario.__name__ for scenario in PROGRAMS[program]} == named
