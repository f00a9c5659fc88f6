"""Tasks that end the process, and tasks that are run again: by name, for the tests that let each of them fail.

All others belong to a group, which passes a failure on; ruff (RUF006) finds a task that nothing refers to.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.unit.sources import modules, parsed, shown

SOURCES: Final = modules("common", "node-agent", "operator", "proto")
# What ends the process, and why nothing goes on without it.
VITAL: Final = {
    "agent": {
        "agent": "all of it, its start included",
        "beat": "/healthz, and which watches are stale",
        "device manager": "allocations, and its timers",
        "ends of containers": "whose devices are free again",
        "files of the kubelet": "one watch for all resources of --delivery kubelet",
        "lease": "whether this agent is alive, and the only one",
        "nri": "what containers get",
    },
    "operator": {
        "beat": "/healthz",
        "election": "whether it may write",
        "leases": "which agents are alive",
        "reconcile": "capacity of Nodes; a node that fails is tried again by the work queue",
        "watch-{kind}": "Nodes, NodeDevices, PodDevices as they are",
        "watchdog": "ends the process where a watch is stale",
    },
    "extender": {
        "activity": "whether it has read everything",
        "beat": "/healthz",
        "binds": "which parts are promised",
        "election": "whether it may bind",
        "followed-lease": "whether it takes part in the election",
        "port": "the answers to kube-scheduler",
        "watch-{kind}": "pods and NodeDevices as they are",
        "watchdog": "ends the process where a watch is stale",
    },
}
# What is run again: it is for showing, or for one plugin, object or feature.
RETRIED: Final = {
    "agent": {
        *("configs", "device numbers", "dra claims", "dra holders", "dra slices", "holdings"),
        *("kubelet endpoint", "kubelet observer", "kubelet state"),
        *("node", "nodedevice", "plugin", "plugin connection", "plugin registry", "plugins"),
        *("memory", "offered twice", "parked nodedevices", "pods", "pods of the kubelet"),
        *("registration socket", "registry socket"),
    },
    "operator": {
        *("configs", "events", "evictions", "gone-nodedevices", "node-labels", "policy", "watch-configs"),
        *("shared-slices", "watch-policy", "watch-{kind}"),
    },
}


_WRAPPERS: Final[dict[str, Mapping[str, Iterable[str]]]] = {"vital": VITAL, "retried": RETRIED}
_PROGRAMS: Final = {
    "common/src/nodedevice_common": "common",
    "kube/src/nodedevice_kube": "kube",
    "node-agent/src/nodedevice_agent": "agent",
    "operator/src/nodedevice_operator": "operator",
    "proto/src/nodedevice_api": "api",
    "cli/src/kubectl_nodedevice": "cli",
}


def short(path: Path) -> str:
    name = shown(path)
    folder = next(folder for folder in _PROGRAMS if name.startswith(folder))
    return _PROGRAMS[folder] + name.removeprefix(folder)


def program(name: str) -> str:
    return "extender" if name.startswith("operator/extender/") else name.partition("/")[0]


def wrapped(module: ast.Module) -> Iterator[tuple[str, str]]:
    """Wrapper and name of each task: of `vital("beat", ...)` these two."""
    for node in ast.walk(module):
        if not isinstance(node, ast.Call):
            continue
        # such as (vital if ... else retried)(name, run)
        names = {each.id for each in ast.walk(node.func) if isinstance(each, ast.Name)} & _WRAPPERS.keys()
        if names and node.args and not isinstance(node.func, ast.Attribute):
            yield from ((name, text(node.args[0])) for name in sorted(names))


def text(node: ast.expr) -> str:
    """Of a constant, or of an f-string as it is written."""
    return str(node.value) if isinstance(node, ast.Constant) else ast.unparse(node).removeprefix("f").strip("'")


@pytest.mark.parametrize("wrapper", _WRAPPERS)
def test_the_lists_are_those_of_the_product(wrapper: str) -> None:
    found: dict[str, set[str]] = {}
    for path in SOURCES:
        if short(path) == "common/tasks.py" or path.name == "vital.py":
            continue
        for name, task in wrapped(parsed(path)):
            if name == wrapper:
                found.setdefault(program(short(path)), set()).add(task)
    assert found == {key: set(names) for key, names in _WRAPPERS[wrapper].items()}


def test_threads_start_by_one_module() -> None:
    """There a thread that cannot be started is an error of the system. The NVML reader is a process of its own."""
    starts = re.compile(r"\b(Thread|Timer|to_thread|run_in_executor|\w+PoolExecutor)\(")
    found = {short(path) for path in SOURCES if starts.search(path.read_text(encoding="utf-8"))}
    reader = "agent/plugins/nvml/reader"
    assert found == {"common/threads.py", f"{reader}/__main__.py", f"{reader}/events.py"}
