"""The kubelet's device manager, line by line: what of its behaviour we share, by which test, and what not, and why.

The lines are those of a table of its behaviour (73), of its own tests' scenarios (106), both read in Kubernetes 1.36 and 1.37, and
of the weak spots that its users have found (29). This file says what the kinds of lines are and where tests are found; the lines
are in rows_behaviour, rows_scenarios and rows_weak_spots.
"""

import ast
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]

# Where tests run a kubelet and a container runtime, as root.
REAL_NODE = "tests/e2e/real_node"
# What stands before the colon in a line's tests. `case:N` is a named case of the differential tests.
FILES = {
    "adm": "tests/unit/node_agent/devicemanager/allocation/test_pod_allocation.py",
    "alloc": "tests/unit/node_agent/devicemanager/allocation/test_allocations.py",
    "ckpt": "tests/unit/node_agent/cli/test_checkpoint.py",
    "edits": "tests/unit/node_agent/devicemanager/allocation/test_container_edits.py",
    "pod": "tests/unit/node_agent/kube/test_pods.py",
    "chk": "tests/unit/node_agent/checkpoint/test_format.py",
    "devices": "tests/unit/node_agent/devicemanager/test_devices.py",
    "plugins": "tests/unit/node_agent/devicemanager/test_manager_plugins.py",
    "pods": "tests/unit/node_agent/devicemanager/test_manager_pods.py",
    "restart": "tests/unit/node_agent/devicemanager/test_manager_restart.py",
    "lists": "tests/unit/node_agent/podresources/test_view.py",
    "prestart": "tests/unit/node_agent/devicemanager/allocation/test_prestart.py",
    "names": "tests/unit/node_agent/devicemanager/test_registration.py",
    "rate": "tests/unit/common/test_token_bucket.py",
    "snap": "tests/unit/node_agent/devicemanager/test_snapshot.py",
    "status": "tests/unit/node_agent/kube/test_status.py",
    "hints": "tests/unit/node_agent/devicemanager/allocation/test_topology_hints.py",
    "merge": "tests/unit/node_agent/devicemanager/allocation/test_topology_merge.py",
    "select": "tests/unit/node_agent/devicemanager/allocation/test_selection.py",
    "align": "tests/unit/node_agent/devicemanager/allocation/test_topology_admission.py",
    "machine": "tests/unit/node_agent/devicemanager/test_manager_machine.py",
    "file": "tests/unit/node_agent/checkpoint/test_files.py",
    "conn": "tests/unit/node_agent/deviceplugin/test_connection.py",
    "dir": "tests/unit/node_agent/deviceplugin/test_plugin_dir.py",
    "reg": "tests/unit/node_agent/deviceplugin/test_registration_server.py",
    "health": "tests/unit/node_agent/lib/test_probes.py",
    "agent": "tests/integration/agent/test_resources.py",
    "again": "tests/integration/agent/test_restart.py",
    "third": "tests/integration/deviceplugin/test_third_party.py",
    "watcher": "tests/integration/deviceplugin/test_plugin_watcher.py",
    "podres": "tests/integration/agent/test_pod_resources.py",
    "called": "tests/integration/deviceplugin/test_pre_start.py",
    "leaks": "tests/robustness/crash/test_leaks.py",
    "kill": "tests/robustness/crash/test_kill.py",
    "opcap": "tests/integration/operator/test_capacity.py",
    "cap": "tests/unit/operator/capacity/test_decide.py",
    "opod": "tests/unit/operator/poddevices/test_plan.py",
    "oppods": "tests/integration/operator/pods/test_poddevices.py",
    "opevents": "tests/integration/operator/pods/test_events.py",
    "stack": "tests/e2e/test_stack.py",
    "wire": "tests/conformance/test_wire.py",
    "named": "tests/conformance/oracle/test_named.py",
    "random": "tests/conformance/oracle/test_sequences.py",
    "purpose": "tests/conformance/oracle/test_on_purpose.py",
    "host": "tests/unit/node_agent/deviceplugin/test_host.py",
    "possible": "tests/unit/node_agent/checkpoint/test_validation.py",
    "reached": "tests/unit/node_agent/devicemanager/test_reached_back.py",
    "inject": "tests/unit/node_agent/runtime/test_injection.py",
    "adjust": "tests/unit/node_agent/nri/test_adjustment.py",
    "apods": "tests/integration/agent/test_pods.py",
    "survives": "tests/integration/agent/test_survives.py",
    "opopt": "tests/integration/operator/test_options.py",
    "sizes": "tests/robustness/fuzz/test_sizes.py",
    "node-answers": f"{REAL_NODE}/test_bad_answers.py",
    "node-devices": f"{REAL_NODE}/test_devices.py",
    "node-ends": f"{REAL_NODE}/test_ends.py",
    "node-closed": f"{REAL_NODE}/test_fail_closed.py",
    "node-reboot": f"{REAL_NODE}/test_reboot.py",
    "node-restarts": f"{REAL_NODE}/test_restarts.py",
}


class Kind(Enum):
    """What a line is to us."""

    SAME = "same"
    STRONGER = "stronger"
    ON_A_NODE = "shown on a real node"
    KUBELETS = "the kubelet's alone"


@dataclass(frozen=True)
class Row:
    """One line. note: the paragraph of docs/differences.md for a stronger one, else why it is not ours."""

    number: int
    says: str
    kind: Kind
    tests: tuple[str, ...] = ()
    note: str = ""


def same(number: int, says: str, *tests: str) -> Row:
    return Row(number, says, Kind.SAME, tests)


def stronger(number: int, says: str, paragraph: str, *tests: str) -> Row:
    return Row(number, says, Kind.STRONGER, tests, paragraph)


def on_a_node(number: int, says: str, *tests: str) -> Row:
    """Kept as it is; it is about containers, so some of its tests look into those that a real runtime has started."""
    return Row(number, says, Kind.ON_A_NODE, tests)


def kubelets(number: int, says: str, why: str) -> Row:
    return Row(number, says, Kind.KUBELETS, note=why)


def is_on_a_node(test: str) -> bool:
    return FILES.get(test.split(":", 1)[0], "").startswith(REAL_NODE)


def has_run(test: str, nodes: Collection[str]) -> bool:
    """Whether one of these ids of pytest is of the named test."""
    where, name = test.split(":", 1)
    if where == "case":
        return any(node.startswith(f"{FILES['named']}::test_row[{name}-") for node in nodes)
    node_id = "::".join((FILES[where], *name.split(".")))
    return any(node == node_id or node.startswith((f"{node_id}[", f"{node_id}::")) for node in nodes)


def exists(test: str) -> bool:
    """Whether the named test is there: `file:test`, `file:Class.test`, `file:Class`, or `case:N`."""
    where, name = test.split(":", 1)
    if where == "case":
        return any(label.startswith(f"{name}-") for label in _strings(FILES["named"]))
    return name in _tests(FILES[where])


@cache
def _tests(path: str) -> frozenset[str]:
    found = set()
    for node in _tree(path).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            # a Hypothesis machine's TestCase
            found.update(target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.ClassDef):
            found.add(node.name)
            found.update(
                f"{node.name}.{part.name}"
                for part in node.body
                if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)
            )
    return frozenset(found)


@cache
def _strings(path: str) -> frozenset[str]:
    constants = (node for node in ast.walk(_tree(path)) if isinstance(node, ast.Constant))
    return frozenset(node.value for node in constants if isinstance(node.value, str))


@cache
def _tree(path: str) -> ast.Module:
    return ast.parse((ROOT / path).read_text())
