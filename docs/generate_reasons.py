"""Writes docs/reasons.md: what stops a pod, and every reason of every condition and Event, from the code's own lists of them.

Run by `make generate`.
"""

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kubectl_nodedevice.why.reasons.table import TABLE
from nodedevice_agent.plugins.nvml.reasons import GpuReason
from nodedevice_api.names import Reason
from nodedevice_operator.observability.events import OF_CONDITIONS, EventReason

PAGE = Path(__file__).parent / "reasons.md"
_INTRO = """# Reasons

[Why a pod waits](#why-a-pod-waits), and [every reason](#of-conditions-and-events) that agents and operator report, from A to Z.
Made from the code by `make generate`; [troubleshooting](troubleshooting.md) has causes and remedies.

## Why a pod waits

What [`kubectl nodedevice why`](why.md) finds, in the order in which it names it: from the request to the container that runs. A
code is the same in each release. The line is the one that it prints, with the names of the pod, node or device; *who* is a role
that may run it.

| code | what stops the pod | line that helps | who |
|---|---|---|---|
"""
_OTHERS = """
## Of conditions and Events

- `kubectl get nodedevices -o wide` shows the reason of Ready: that of the first condition that is not right.
- A waiting pod's reason is in `status.waiting` of the NodeDevice, and in the message of its Event `DevicesWaiting`.
- A GPU may have the reason of an Xid besides, such as `Xid79`: [GPU health](gpu.md#health).
- *Event*: there are Events of that reason, on the object named. Those of a condition are on the NodeDevice; `DevicesNotInjected`
  is on the pod.

| reason | of | Event | what it says |
|---|---|---|---|
"""


# of a line's fields that are more than a name
_PLACEHOLDERS = {
    "resource_options": "--resource RESOURCE",
    "device_options": "--device ID",
    "scheduler_options": "events --all-namespaces --field-selector source=SCHEDULER",
    "scale_options": "scale OWNER --replicas 1",
    "workload_options": "workloads.kueue.x-k8s.io NAME",
    "resume_patch": "PATCH",
    "rollout_patch": "PATCH",
    "system": "nodedevice-system",
    "node_device": "NAME",
    "device": "ID",
}


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


def _causes() -> Iterator[str]:
    for row in TABLE:
        line = re.sub(
            r"\{([a-z_]+)\}", lambda name: _PLACEHOLDERS.get(name[1], name[1].upper().replace("_", "-")), row.line
        )
        yield f"| `{row.code}` | {row.meaning} | `{line}` | {row.role} |\n"


def page() -> str:
    every = sorted([*rows(Reason), *rows(EventReason), *rows(GpuReason)], key=lambda row: row.reason)
    lines = (f"| `{row.reason}` | {row.of} | {'yes' if row.is_event else ''} | {row.meaning} |\n" for row in every)
    return _INTRO + "".join(_causes()) + _OTHERS + "".join(lines)


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
