"""The measure of the source tree, on a tree of a few lines."""

from pathlib import Path

from hack.measure.tree import measure

_AGENT = """
from collections.abc import Callable

Report = Callable[[str], None]


class Plugin:
    def __init__(self, name: str, report: Report, now: Callable[[], float], done: Callable[[], None] | None) -> None:
        self.name = name


class _Private:
    pass
"""
_OPERATOR = """
from dataclasses import dataclass


@dataclass
class Plugin:
    name: str


class _Private:
    pass
"""


def test_a_small_tree(tmp_path: Path) -> None:
    for name, text in (("node-agent/src/a/b/plugin.py", _AGENT), ("operator/src/o/plugin.py", _OPERATOR)):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "node-agent/src/a/b/__init__.py").touch()
    (tmp_path / "node-agent/src/a/b/api_pb2.py").write_text("class Plugin:\n    pass\n" * 100)
    shapes = measure(tmp_path)
    assert set(shapes) == {"agent", "operator", "programs"}
    assert shapes["programs"].repeated() == ["Plugin"]
    assert shapes["agent"].callables == {"plugin.Plugin": 3, "plugin._Private": 0}
    rows = shapes["programs"].rows()
    assert rows["files"] == "2"
    assert rows["lines"] == str(_AGENT.count("\n") + _OPERATOR.count("\n"))
    assert rows["lines of a function, median / p90 / max"] == "2 / 2 / 2"
    assert rows["constructors with more than 2 callables"] == "1"
