"""Taint and labels of a Node: what they report of its NodeDevices, and that a label of ours is always a valid one."""

import re

import pytest
from nodedevice_operator.objects.node import LABEL_PREFIX, UNLABELED, TaintAndLabels, is_our_label
from nodedevice_operator.objects.nodedevice import DeviceRecord, NodeDeviceRecord
from nodedevice_operator.remediation.node_taint_and_labels import desired_labels, label_changes

from tests.fakes.operator.operator_model import node_device, not_configured

BROKEN = {"gpu-0": DeviceRecord("Unhealthy", "x", False, ())}
AWAY = node_device(endpoint="Stopped", total=8, healthy=0, available=0, devices_omitted=8)
ENDED = not_configured(total=2, healthy=0, allocated=2, devices=BROKEN, devices_omitted=1)
NUMBERS = {"nodedevice.io/example.com.gpu.total": "8", "nodedevice.io/example.com.gpu.healthy": "7"}


@pytest.mark.parametrize(
    ("record", "wanted"),
    [
        pytest.param(node_device(devices=BROKEN), TaintAndLabels(True), id="a device is broken"),
        pytest.param(node_device(), TaintAndLabels(False), id="none is broken"),
        pytest.param(AWAY, TaintAndLabels(True), id="the plugin is away, and no device is listed"),
        pytest.param(ENDED, TaintAndLabels(False), id="a pod holds devices that are not configured any more"),
        pytest.param(node_device(has_status=False, total=2, devices=BROKEN), UNLABELED, id="nothing is reported"),
    ],
)
def test_a_node_is_tainted_while_a_device_is_broken(record: NodeDeviceRecord, wanted: TaintAndLabels) -> None:
    assert desired_labels([record], taint=True, labels=False) == wanted
    assert desired_labels([record], taint=False, labels=False) == UNLABELED


def test_labels_sum_up() -> None:
    assert desired_labels([node_device(total=8, healthy=7)], taint=True, labels=True).labels == NUMBERS
    assert desired_labels([node_device(has_status=False, total=2)], taint=True, labels=True) == UNLABELED


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
