"""The table of nodes that tests ran on: what a run changes in it, how it reads, and that install.md has it as it is."""

import json
from dataclasses import replace

import pytest

from docs import generate_tried_nodes
from docs.tried_nodes import BEGIN, END, PageError, Row, TriedNode, from_json, merged, page_with, to_json
from tests.e2e.recording import Recorder, helm_version, kernel_version, nri_state, oci_version, systemd_version

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
EMPTY = f"before\n{BEGIN}\n{END}\nafter\n"


def lines_of(page: str) -> list[str]:
    return [line for line in page.splitlines() if line.startswith("| ") and "cgroup v" in line]


def known(node: TriedNode = NODE, target: str = TARGET, *tests: str) -> Row:
    return Row(node, target, dict.fromkeys(tests, BEFORE))


def test_the_page_is_up_to_date() -> None:
    page = generate_tried_nodes.PAGE.read_text(encoding="utf-8")
    assert page == page_with(page, generate_tried_nodes.read()), "run `make generate`"


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


@pytest.mark.parametrize(
    "other",
    [
        replace(NODE, kubernetes="1.36.4"),
        replace(NODE, kernel="6.12.117"),
        replace(NODE, driver="cgroupfs"),
        replace(NODE, nri="on"),
        replace(NODE, delivery="kubelet"),
        replace(NODE, helm="3.22.0"),
    ],
    ids=["kubernetes", "kernel", "driver", "validator", "delivery", "helm"],
)
def test_another_kind_of_node_is_another_row(other: TriedNode) -> None:
    assert len(merged([known(NODE, TARGET, "numa")], TARGET, {other: {"numa": True}}, TODAY)) == 2


def test_another_target_is_another_row() -> None:
    assert len(merged([known(NODE, "e2e", "restarts")], TARGET, {NODE: {"restarts": True}}, TODAY)) == 2


def test_rows_survive_the_file() -> None:
    rows = [known(NODE, TARGET, "numa"), known(NEWER, "e2e", "restarts")]
    assert from_json(json.loads(json.dumps(to_json(rows)))) == rows


def test_a_row_reads() -> None:
    page = page_with(EMPTY, [Row(NODE, TARGET, {"hot plug": TODAY, "numa": BEFORE})])
    assert lines_of(page) == [
        "| Debian 12, kernel 6.1, cgroup v2 | containerd 2.4.2, runc 1.1.5, NRI with validator | `nri` | 1.37.1, amd64 "
        "| `make e2e-machine`: 2 | 2026-11-01 to 2026-11-24 |"
    ]


def test_rows_that_look_the_same_are_one_line() -> None:
    """Each file of tests counts once."""
    other = replace(NODE, helm="3.22.0", driver="cgroupfs", kernel="6.1.0-60")
    [line] = lines_of(page_with(EMPTY, [known(NODE, TARGET, "numa"), known(other, TARGET, "numa", "hot plug")]))
    assert "| `make e2e-machine`: 2 | 2026-11-01 |" in line
    by_target = [known(NODE, TARGET, "numa"), known(NODE, "e2e", "numa")]
    [line] = lines_of(page_with(EMPTY, by_target))
    assert "| `make e2e-machine`: 1, `make e2e`: 1 |" in line
    assert len(lines_of(page_with(EMPTY, [known(NODE, TARGET, "numa"), known(NEWER, TARGET, "numa")]))) == 2


def test_a_node_without_a_distribution_reads() -> None:
    [line] = lines_of(page_with(EMPTY, [known(replace(NODE, system="", nri="off"), "e2e", "devices")]))
    assert line.startswith(
        "| namespaces of one machine, kernel 6.1, cgroup v2 | containerd 2.4.2, runc 1.1.5, no NRI |"
    )


def test_what_was_tried_is_not_called_untried() -> None:
    crio = replace(NODE, containers="cri-o 1.35.1", oci="crun 1.21", architecture="arm64")
    without, with_it = (page_with(EMPTY, [known(node, TARGET, "numa")]) for node in (NODE, crio))
    for word in ("CRI-O", "crun", "arm64"):
        assert word in without.partition("**Not tried**")[2]
        assert word not in with_it.partition("**Not tried**")[2]


def test_without_results_there_is_no_table() -> None:
    assert page_with(EMPTY, []) == EMPTY


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(PageError, match="needs the lines"):
        page_with("nothing", [])


def test_a_file_has_passed_when_each_of_its_tests_has(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Row] = []
    monkeypatch.setattr(generate_tried_nodes, "read", list)
    monkeypatch.setattr(generate_tried_nodes, "write", kept.extend)
    recorder = Recorder()
    for tests, is_passed in (("numa", True), ("hot plug", True), ("hot plug", False), ("hot plug", True)):
        recorder.note(TARGET, NODE, tests, is_passed=is_passed)
    recorder.keep()
    assert [list(row.tests) for row in kept] == [["numa"]]


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("6.1.0-56-amd64", "6.1.0-56"),
        ("6.12.117+deb13-amd64", "6.12.117"),
        ("6.18.44-x-2", "6.18.44"),
        ("6.1.0", "6.1.0"),
    ],
)
def test_a_kernels_version(text: str, version: str) -> None:
    assert kernel_version(text) == version


def test_other_versions() -> None:
    assert oci_version("runc version 1.1.5+ds1\ncommit: 1.1.5+ds1-1+deb12u1\nspec: 1.0.2-dev\n") == "runc 1.1.5"
    assert oci_version("crun version 1.21\ncommit: 10269840\n") == "crun 1.21"
    assert systemd_version("systemd 252 (252.39-1~deb12u1)\n+PAM +AUDIT\n") == "systemd 252"
    assert systemd_version("") == ""
    assert helm_version("v4.3.1+g0000000\n") == "4.3.1"


@pytest.mark.parametrize(
    ("is_disabled", "validates", "state"), [(True, True, "off"), (False, True, "validator"), (False, False, "on")]
)
def test_the_state_of_nri(is_disabled: bool, validates: bool, state: str) -> None:
    nri = {"disable": is_disabled, "default_validator": {"enable": validates}}
    assert nri_state({"plugins": {"io.containerd.nri.v1.nri": nri}}) == state
