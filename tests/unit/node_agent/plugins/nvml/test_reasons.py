"""Every reason that the plugin reports is on the page of reasons, and no other."""

import ast
from collections.abc import Iterator
from pathlib import Path

from nodedevice_agent.plugins import nvml
from nodedevice_agent.plugins.nvml.reasons import GpuReason


def nodes() -> Iterator[ast.AST]:
    for path in sorted(Path(next(iter(nvml.__path__))).rglob("*.py")):
        yield from ast.walk(ast.parse(path.read_text()))


def test_each_reason_is_used() -> None:
    used = {
        node.attr
        for node in nodes()
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "GpuReason"
    }
    assert used == {name for name in vars(GpuReason) if name.isupper()}


def test_none_is_spelled_out() -> None:
    calls = (node for node in nodes() if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args)
    reasons = (call.args[0] for call in calls if ast.unparse(call.func) in ("Trouble", "Problem"))
    assert [ast.unparse(reason) for reason in reasons if isinstance(reason, ast.Constant)] == []
