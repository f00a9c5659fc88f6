"""Every reason that the plugin reports is on the page of reasons, which has those of GpuReason."""

import ast
from pathlib import Path

from nodedevice_agent.plugins import nvml


def test_none_is_spelled_out() -> None:
    files = Path(next(iter(nvml.__path__))).rglob("*.py")
    nodes = (node for path in files for node in ast.walk(ast.parse(path.read_text())))
    calls = (node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args)
    reasons = (call.args[0] for call in calls if ast.unparse(call.func) in ("Trouble", "Problem"))
    assert [ast.unparse(reason) for reason in reasons if isinstance(reason, ast.Constant)] == []
