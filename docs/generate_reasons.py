"""Writes docs/reasons.md: every reason of every condition and Event, from the code's own lists of them. Run by `make generate`."""

import ast
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nodedevice_agent.plugins.nvml.reasons import GpuReason
from nodedevice_api.names import Reason
from nodedevice_operator.observability.events import OF_CONDITIONS, EventReason

PAGE = Path(__file__).parent / "reasons.md"
_INTRO = """# Reasons

Every reason that agents and operator report, from A to Z. Made from the code by `make generate`;
[troubleshooting](troubleshooting.md) has causes and remedies.

- `kubectl get nodedevices -o wide` shows the reason of Ready: that of the first condition that is not right.
- A waiting pod's reason is in `status.waiting` of the NodeDevice, and in the message of its Event `DevicesWaiting`.
- A GPU may have the reason of an Xid besides, such as `Xid79`: [GPU health](gpu.md#health).
- *Event*: there are Events of that reason, on the object named. Those of a condition are on the NodeDevice; `DevicesNotInjected`
  is on the pod.

| reason | of | Event | what it says |
|---|---|---|---|
"""


@dataclass(frozen=True)
class Row:
    """One reason. of: the conditions or the object that have it, as the comment above its group says."""

    reason: str
    of: str
    is_event: bool
    meaning: str


def rows(kind: type) -> Iterator[Row]:
    """Of a class of constants: each with a docstring, in groups that a comment names. Raises ValueError where one lacks either."""
    source = inspect.getsource(kind)
    lines = source.splitlines()
    (body,) = (node.body for node in ast.parse(source).body if isinstance(node, ast.ClassDef))
    for node, after in zip(body, [*body[1:], None], strict=True):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.value, ast.Constant):
            continue
        reason = str(node.value.value)
        is_documented = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        group = next((line.strip() for line in reversed(lines[: node.lineno]) if line.strip().startswith("# ")), "")
        if not is_documented or not group:
            raise ValueError(f"{kind.__name__}: {reason} needs a docstring below it, and a comment above its group")
        assert isinstance(after, ast.Expr)
        assert isinstance(after.value, ast.Constant)
        meaning = " ".join(str(after.value.value).split())
        yield Row(reason, group.removeprefix("# "), kind is EventReason or reason in OF_CONDITIONS, meaning)


def page() -> str:
    every = sorted([*rows(Reason), *rows(EventReason), *rows(GpuReason)], key=lambda row: row.reason)
    lines = (f"| `{row.reason}` | {row.of} | {'yes' if row.is_event else ''} | {row.meaning} |\n" for row in every)
    return _INTRO + "".join(lines)


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
