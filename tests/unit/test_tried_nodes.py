"""The table of nodes that tests ran on: what a run changes in it."""

from dataclasses import replace

import pytest

from docs import generate_tried_nodes
from docs.tried_nodes import Row, TriedNode, merged
from tests.e2e.recording import Recorder

NODE = TriedNode(
    kubernetes="1.37.1",
    architecture="amd64",
    system="Debian 12",
    init="systemd 252",
    kernel="6.1.0-56",
    cgroup="v2",
    driver="systemd",
    containers="containerd 2.4.2",
    oci="runc 1.1.5",
    nri="validator",
    delivery="nri",
    helm="4.3.1",
)
NEWER = replace(NODE, kubernetes="1.37.2", kernel="6.1.0-60")
TARGET, BEFORE, TODAY = "e2e-machine", "2026-11-01", "2026-11-24"


def known(node: TriedNode = NODE, target: str = TARGET, *tests: str) -> Row:
    return Row(node, target, dict.fromkeys(tests, BEFORE))


def test_a_row_comes_when_a_test_has_passed() -> None:
    assert merged([], TARGET, {NODE: {"numa": False}}, TODAY) == []
    assert merged([], TARGET, {NODE: {"numa": True, "hot plug": False}}, TODAY) == [Row(NODE, TARGET, {"numa": TODAY})]


def test_a_test_that_fails_goes_and_the_others_keep_their_day() -> None:
    rows = merged([known(NODE, TARGET, "numa", "hot plug")], TARGET, {NODE: {"numa": False}}, TODAY)
    assert rows == [known(NODE, TARGET, "hot plug")]


def test_a_newer_patch_takes_over_test_by_test() -> None:
    rows = merged([known(NODE, TARGET, "numa", "hot plug")], TARGET, {NEWER: {"numa": True}}, TODAY)
    assert rows == [known(NODE, TARGET, "hot plug"), Row(NEWER, TARGET, {"numa": TODAY})]
    assert merged(rows, TARGET, {NEWER: {"hot plug": True}}, TODAY) == [
        Row(NEWER, TARGET, {"hot plug": TODAY, "numa": TODAY})
    ]


def test_a_file_has_passed_when_each_of_its_tests_has(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Row] = []
    monkeypatch.setattr(generate_tried_nodes, "read", list)
    monkeypatch.setattr(generate_tried_nodes, "write", kept.extend)
    recorder = Recorder()
    for tests, is_passed in (("numa", True), ("hot plug", True), ("hot plug", False), ("hot plug", True)):
        recorder.note(TARGET, NODE, tests, is_passed=is_passed)
    recorder.keep()
    assert [list(row.tests) for row in kept] == [["numa"]]
