"""Nodes that tests ran on, as rows of the table in docs/install.md: what is kept of a run, and how it reads.

Pure values and text. Tests record them (tests/e2e/recording.py); generate_tried_nodes writes the page.
"""

import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from docs import tables

BEGIN: Final = "<!-- nodes: made from docs/tried-nodes.json by `make generate` -->"
END: Final = "<!-- end of nodes -->"
_HEAD: Final = "| node | container runtime | delivery | Kubernetes | files of tests that passed | on |"
_NRI: Final = {"validator": "NRI with validator", "on": "NRI without validator", "off": "no NRI"}


class PageError(Exception):
    """The page has no place for the table."""


@dataclass(frozen=True, order=True)
class TriedNode:
    """What a node and its cluster were. Versions are the node's own words for them, and empty where there is none.

    system: the distribution, where the node has one of its own. cgroup: v1 or v2. driver: of cgroups, the kubelet's.
    containers, oci: containerd and runc, or others, with their versions. nri: one of validator, on, off.
    delivery: the agent's. helm: that installed the chart.
    """

    kubernetes: str
    architecture: str
    system: str
    init: str
    kernel: str
    cgroup: str
    driver: str
    containers: str
    oci: str
    nri: str
    delivery: str
    helm: str = ""

    @property
    def kind(self) -> "TriedNode":
        """The same without the last number of each version: a later run on it says the same of a newer patch."""
        return TriedNode(**{field.name: _shortened(getattr(self, field.name)) for field in fields(self)})


@dataclass(frozen=True, order=True)
class Row:
    """tests: the day on which each file of tests passed last, by its words. target: of make, that runs them."""

    node: TriedNode
    target: str
    tests: Mapping[str, str]


def merged(rows: Iterable[Row], target: str, outcomes: Mapping[TriedNode, Mapping[str, bool]], today: str) -> list[Row]:
    """The rows after a run. outcomes: whether each file of tests passed, by what it ran on.

    What failed is taken away. A newer patch of the same kind of node takes the place of the one before, test by test.
    """
    tests = {(row.node, row.target): dict(row.tests) for row in rows}
    for node, passed in outcomes.items():
        for (known, its_target), days in tests.items():
            if its_target == target and known.kind == node.kind:
                for name in passed:
                    days.pop(name, None)
        tests.setdefault((node, target), {}).update({name: today for name, is_passed in passed.items() if is_passed})
    return sorted(
        Row(node, its_target, dict(sorted(days.items()))) for (node, its_target), days in tests.items() if days
    )


def to_json(rows: Iterable[Row]) -> list[dict[str, Any]]:
    return [{**asdict(row.node), "target": row.target, "tests": dict(row.tests)} for row in rows]


def from_json(found: Iterable[Mapping[str, Any]]) -> list[Row]:
    names = {field.name for field in fields(TriedNode)}
    return [
        Row(TriedNode(**{key: each[key] for key in each if key in names}), each["target"], each["tests"])
        for each in found
    ]


# What people have, and whether a row is about it. What no node says of itself is tried by nobody until somebody adds it here.
_WANTED: Final[tuple[tuple[str, Callable[[TriedNode], bool]], ...]] = (
    ("CRI-O", lambda node: node.containers.startswith("cri-o")),
    ("crun", lambda node: node.oci.startswith("crun")),
    ("containerd before 2.4", lambda node: _is_before(node.containers, "containerd", (2, 4))),
    ("arm64", lambda node: node.architecture == "arm64"),
    ("k3s", lambda node: "+k3s" in node.kubernetes),
    ("RKE2", lambda node: "+rke2" in node.kubernetes),
    ("MicroK8s, kind, managed clusters", lambda _: False),
    ("hardware", lambda _: False),
)


def page_with(page: str, rows: Sequence[Row]) -> str:
    """The page with the table between its marks. Raises PageError where it has not both of them."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise PageError(f"the page needs the lines {BEGIN} and {END}")
    if not rows:
        return f"{before}{BEGIN}\n{END}{after}"
    untried = [name for name, is_it in _WANTED if not any(is_it(row.node) for row in rows)]
    not_tried = textwrap.fill(f"**Not tried** by these tests: {', '.join(untried)}.", 100, break_on_hyphens=False)
    return f"{before}{BEGIN}\n\n{tables.table(_HEAD, _lines(rows), [])}\n{not_tried}\n\n{END}{after}"


def _lines(rows: Iterable[Row]) -> list[str]:
    """One line for all rows that look the same to a reader, such as those of two releases of Helm."""
    alike: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        alike.setdefault(_cells(row.node), []).append(row)
    return [f"| {' | '.join((*cells, _tests(group), _days(group)))} |" for cells, group in alike.items()]


def _cells(node: TriedNode) -> tuple[str, ...]:
    return (
        f"{node.system or 'namespaces of one machine'}, kernel {_shortened(node.kernel)}, cgroup {node.cgroup}",
        f"{node.containers}, {node.oci}, {_NRI[node.nri]}",
        f"`{node.delivery}`",
        f"{node.kubernetes}, {node.architecture}",
    )


def _tests(rows: Iterable[Row]) -> str:
    found: dict[str, set[str]] = {}
    for row in rows:
        found.setdefault(row.target, set()).update(row.tests)
    return ", ".join(f"`make {target}`: {len(names)}" for target, names in found.items())


def _days(rows: Iterable[Row]) -> str:
    days = [day for row in rows for day in row.tests.values()]
    return " to ".join(sorted({min(days), max(days)}))


def _shortened(value: str) -> str:
    """Without what comes after the second number of a version: `1.37.1` is `1.37`, and `6.1.0-56` is `6.1`."""
    return re.sub(r"(\d+\.\d+)[\d.+~-][\w.+~-]*", r"\1", value)


def _is_before(value: str, name: str, version: tuple[int, int]) -> bool:
    found = re.search(rf"{name} (\d+)\.(\d+)", value)
    return found is not None and (int(found[1]), int(found[2])) < version
