"""Taint and labels of a Node: what they report of its NodeDevices, and that a label of ours is always a valid one."""

import re

import pytest
from nodedevice_operator.objects.node import LABEL_PREFIX, UNLABELED, TaintAndLabels, is_our_label
from nodedevice_operator.objects.nodedevice import DeviceRecord
from nodedevice_operator.remediation.node_taint_and_labels import desired_labels, label_changes

from tests.fakes.operator.operator_model import node_device, not_configured

BROKEN = {"gpu-0": DeviceRecord("Unhealthy", "x", False, ())}


def test_nothing_is_wanted_where_nothing_is_on() -> None:
    assert desired_labels([node_device(devices=BROKEN)], taint=False, labels=False) == UNLABELED


@pytest.mark.parametrize(("devices", "is_tainted"), [(BROKEN, True), ({}, False)])
def test_tainted_while_a_device_is_broken(devices: dict[str, DeviceRecord], is_tainted: bool) -> None:
    assert desired_labels([node_device(devices=devices)], taint=True, labels=False) == TaintAndLabels(is_tainted)


def test_tainted_while_the_plugin_is_away_though_no_device_is_listed() -> None:
    stopped = node_device(endpoint="Stopped", total=8, healthy=0, available=0, devices_omitted=8)
    assert desired_labels([stopped], taint=True, labels=False) == TaintAndLabels(True)


def test_what_a_pod_holds_of_a_resource_that_is_not_configured_is_not_broken() -> None:
    ended = not_configured(total=2, healthy=0, allocated=2, devices=BROKEN, devices_omitted=1)
    assert desired_labels([ended], taint=True, labels=False) == TaintAndLabels(False)


def test_of_a_nodedevice_without_a_status_nothing_is_said() -> None:
    silent = node_device(has_status=False, total=2, devices=BROKEN)
    assert desired_labels([silent], taint=True, labels=True) == UNLABELED


def test_labels_sum_up() -> None:
    found = desired_labels([node_device(total=8, healthy=7)], taint=True, labels=True)
    assert found.labels == {
        "nodedevice.io/example.com.gpu.total": "8",
        "nodedevice.io/example.com.gpu.healthy": "7",
    }


@pytest.mark.parametrize("resource", ["a/b", f"{'d' * 60}.example.com/{'n' * 63}", "example.com/" + "x-" * 30 + "y"])
def test_every_label_is_valid_and_of_one_resource(resource: str) -> None:
    keys = desired_labels([node_device(resource)], taint=False, labels=True).labels
    for key in keys:
        assert re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", key.removeprefix(LABEL_PREFIX)), key
    assert not keys.keys() & desired_labels([node_device(f"{resource}2")], taint=False, labels=True).labels.keys()


def test_an_administrators_label_with_our_prefix_is_not_ours() -> None:
    ours = desired_labels([node_device("a/b")], taint=False, labels=True).labels
    assert all(map(is_our_label, ours))
    assert not any(map(is_our_label, ("nodedevice.io/rack", "nodedevice.io/played-by", "example.com/gpu.total")))


def test_changes_set_what_differs_and_take_away_what_is_left() -> None:
    seen = TaintAndLabels(labels={"a": "1", "b": "1", "c": "1"})
    want = TaintAndLabels(labels={"a": "1", "b": "2", "d": "1"})
    assert label_changes(seen, want) == {"b": "2", "d": "1", "c": None}
