"""Which pools have a NodeDevice, what it shows, and how their states follow their slices."""

import math

from nodedevice_agent import __version__
from nodedevice_agent.dra.served import GONE_SECONDS, INCOMPLETE_SECONDS
from nodedevice_api import names
from nodedevice_api.names import Condition, Reason
from nodedevice_api.nodedevice import NodeDeviceStatus
from prometheus_client import REGISTRY

from tests.unit.node_agent.dra.published import DRIVER, KEY, NAME, NODE, row
from tests.unit.node_agent.dra.serving import Node
from tests.unit.node_agent.kube.shown_status import MONDAY


def test_a_pool_has_a_nodedevice_once_all_slices_and_holders_are_known() -> None:
    node = Node()
    node.held.is_known = False
    assert node.put("s", ["a", "b"]) == {NAME}
    assert node.status() is None
    assert node.served.held_changed(KEY, node.now) == node.served.held_known(node.now) == set()
    assert node.begin("s") == {NAME}
    assert node.status() is None
    node.held.is_known = True
    node.held.rows[KEY] = [row("p", "a")]
    assert node.served.held_known(node.now) == {NAME}
    found = node.shown()
    assert (found.total, found.allocated, found.available, found.driver, found.pool) == (2, 1, 1, DRIVER, NODE)
    assert found.agent is not None
    agent = found.agent.served_by, found.agent.delivery, found.agent.version
    assert agent == (names.SERVED_BY_DRA, "", __version__)
    assert found.allocations[0].since == MONDAY
    assert ({*node.served.resources}, node.served.has(NAME)) == ({NAME}, True)
    assert [each.status for each in found.conditions if each.type == Condition.WATCHES_CURRENT] == ["True"]
    of_pool = {"resource_name": NAME}
    of_pod = {"namespace": "default", "pod": "p", "container": "main"}
    assert REGISTRY.get_sample_value("nodedevice_agent_devices", {**of_pool, "state": "total"}) == 2
    assert REGISTRY.get_sample_value("nodedevice_agent_allocated_devices", {**of_pool, **of_pod}) == 1
    # there is nothing to wait for
    assert node.served.next_deadline(node.now) == math.inf
    assert not node.served.has("example.com/other")


def test_a_pool_that_loses_its_slices_stays_for_a_moment_and_is_gone_then() -> None:
    node = Node.with_pool()
    assert node.served.removed("s", node.now) == {NAME}
    assert (node.state(), node.reason()) == ("Running", Reason.SERVED_BY_DRA)
    assert node.served.next_deadline(node.now) == node.now + GONE_SECONDS
    # a kubelet that starts deletes them, and the driver publishes them again
    node.passes(GONE_SECONDS - 1)
    node.put("s", ["a"])
    node.passes(60)
    assert node.state() == "Running"
    node.served.removed("s", node.now)
    assert node.passes(GONE_SECONDS) == {NAME}
    assert (node.state(), node.reason()) == ("Gone", Reason.ENDPOINT_GONE)
    assert node.passes(1) == set()
    node.put("s", ["a"])
    assert (node.state(), node.reason()) == ("Running", Reason.SERVED_BY_DRA)


def test_what_is_gone_is_forgotten_with_its_object_unless_pods_hold_devices() -> None:
    node = Node.with_pool()
    node.held.rows[KEY] = [row("p", "a")]
    assert not node.served.forget(NAME)
    node.served.removed("s", node.now)
    node.passes(GONE_SECONDS)
    assert not node.served.forget(NAME)
    del node.held.rows[KEY]
    assert node.served.held_changed(KEY, node.now) == {NAME}
    assert node.served.forget(NAME)
    assert node.served.names == {}
    assert node.status() is None
    assert node.served.forget("example.com/unknown")
    node.put("s", ["a"])
    assert node.state() == "Running"


def test_an_incomplete_pool_is_late_after_a_while() -> None:
    node = Node.with_pool(count=2)
    assert node.reason() == Reason.SERVED_BY_DRA
    assert node.served.next_deadline(node.now) == node.now + INCOMPLETE_SECONDS
    # also where it changes all the time
    node.passes(INCOMPLETE_SECONDS / 2)
    node.put("s", ["a", "b"], count=2, generation=2)
    assert node.passes(INCOMPLETE_SECONDS / 2) == {NAME}
    assert node.reason() == Reason.POOL_INCOMPLETE
    assert node.served.next_deadline(node.now) == math.inf
    assert node.passes(INCOMPLETE_SECONDS) == set()
    assert node.reason() == Reason.POOL_INCOMPLETE
    node.put("s", ["a"], generation=3)
    assert node.reason() == Reason.SERVED_BY_DRA
    node.put("s", ["a"], generation=4, count=2)
    assert node.reason() == Reason.SERVED_BY_DRA


def test_pools_of_before_the_start_are_gone_once_that_is_sure() -> None:
    other = (DRIVER, "other")
    node = Node({KEY: NAME, other: f"{DRIVER}/other"})
    held = ("nic.example.com", "nics")
    node.held.rows[held] = [row("p", "n0")]
    names_ = {NAME, f"{DRIVER}/other", "nic.example.com/nics"}
    node.put("s", ["a"])
    assert node.begin("s") == names_
    # slices of the others may come yet, also after the kubelet has answered
    assert node.served.held_known(node.now) == names_
    assert [node.status(name) is None for name in sorted(names_)] == [False, True, True]
    node.put("o", ["b"], pool="other")
    assert node.state(f"{DRIVER}/other") == "Running"
    assert node.passes(GONE_SECONDS) == {"nic.example.com/nics"}
    assert node.state("nic.example.com/nics") == "Gone"


def test_of_what_is_gone_and_held_by_nobody_no_object_is_made() -> None:
    node = Node({KEY: NAME})
    node.begin()
    node.passes(GONE_SECONDS)
    assert node.status(observed=NodeDeviceStatus()) is None
    assert node.status() is not None
    # but of what is held, or offered
    node.held.rows[KEY] = [row("p", "a")]
    assert node.status(observed=NodeDeviceStatus()) is not None
    node.held.rows.clear()
    node.put("s", ["a"])
    assert node.status(observed=NodeDeviceStatus()) is not None


def test_a_pool_that_only_pods_know_is_shown_as_gone() -> None:
    node = Node()
    node.begin()
    node.held.rows[KEY] = [row("p", "a")]
    assert node.served.held_changed(KEY, node.now) == {NAME}
    assert node.state() == "Gone"
    assert node.served.held_changed((names.DRA_DRIVER, NODE), node.now) == set()
    # and one that nobody knows is not
    assert node.served.held_changed((DRIVER, "unknown"), node.now) == set()
    assert {*node.served.resources} == {NAME}


def test_a_nodedevice_of_before_is_remembered_where_nothing_else_is() -> None:
    node = Node({KEY: NAME})
    for name, status in (
        (f"{DRIVER}/other", NodeDeviceStatus(driver=DRIVER, pool="other")),
        (NAME, NodeDeviceStatus(driver=DRIVER, pool="third")),
        ("example.com/gpu", NodeDeviceStatus()),
        ("example.com/gpu", NodeDeviceStatus(driver=DRIVER, pool="fourth")),
        (f"{DRIVER}/changed", NodeDeviceStatus(driver=DRIVER, pool=NODE)),
    ):
        node.served.remember(name, status)
    assert node.served.names == {KEY: NAME, (DRIVER, "other"): f"{DRIVER}/other"}
    node.begin()
    node.passes(GONE_SECONDS)
    assert node.state(f"{DRIVER}/other") == "Gone"
    node.served.remember(f"{DRIVER}/late", NodeDeviceStatus(driver=DRIVER, pool="late"))
    assert (DRIVER, "late") not in node.served.names


def test_a_cordon_is_reported_until_it_is_gone() -> None:
    node = Node.with_pool()
    node.served.cordoned(NAME, {"a": None})
    assert node.reason() == Reason.CORDON_NOT_POSSIBLE
    assert "only the driver can take a device out of use" in node.registered().message
    node.served.has_rules = True
    assert "create this DeviceTaintRule" in node.registered().message
    node.served.cordoned(NAME, {})
    assert node.reason() == Reason.SERVED_BY_DRA
