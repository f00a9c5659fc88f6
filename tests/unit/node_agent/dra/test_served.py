"""Which pools have a NodeDevice, by which name, and how their states follow their slices."""

import math
from collections.abc import Collection
from typing import Any

import pytest
from nodedevice_agent import __version__
from nodedevice_agent.devicemanager.places import MAX_NAMES, Places, share
from nodedevice_agent.devicemanager.resources.resource import EndpointState, Resource
from nodedevice_agent.dra.devices import PoolKey
from nodedevice_agent.dra.served import GONE_SECONDS, INCOMPLETE_SECONDS, ServedByDrivers
from nodedevice_api import names
from nodedevice_api.names import Condition, Reason
from nodedevice_api.nodedevice import NodeDeviceStatus

from tests.unit.node_agent.dra.published import DRIVER, NODE, FakeHeld, a_slice, row
from tests.unit.node_agent.kube.shown_status import MONDAY

KEY = (DRIVER, NODE)
NAME = f"{DRIVER}/devices"
SEEN = NodeDeviceStatus(total=0)


class Node:
    """Of the clock's second `now`. taken: names that others give out here."""

    def __init__(self, known: dict[PoolKey, str] | None = None) -> None:
        self.held, self.now = FakeHeld(), 100.0
        self.taken: set[str] = set()
        self.served = ServedByDrivers(NODE, self.held, lambda name: name in self.taken, known or {})

    def put(self, name: str, devices: Collection[str] = (), **more: Any) -> set[str]:
        return self.served.put(a_slice(name, devices, **more), self.now)

    def begin(self, *slice_names: str) -> set[str]:
        return self.served.synced(slice_names, self.now)

    def passes(self, seconds: float) -> set[str]:
        self.now += seconds
        return self.served.tick(self.now)

    def status(self, name: str = NAME, observed: NodeDeviceStatus = SEEN) -> NodeDeviceStatus | None:
        return self.served.status(name, observed, MONDAY, self.now, is_watch_stale=False)

    def state(self, name: str = NAME) -> str:
        found = self.status(name)
        assert found is not None
        assert found.endpoint is not None
        return found.endpoint.state

    def reason(self, name: str = NAME) -> str:
        found = self.status(name)
        assert found is not None
        return next(each.reason for each in found.conditions if each.type == Condition.REGISTERED)


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
    found = node.status()
    assert found is not None
    assert (found.total, found.allocated, found.available, found.driver, found.pool) == (2, 1, 1, DRIVER, NODE)
    assert found.agent is not None
    assert (found.agent.served_by, found.agent.runtime) == (names.SERVED_BY_DRA, names.RUNTIME_KUBELET)
    assert found.agent.version == __version__
    assert found.allocations[0].since == MONDAY
    assert {*node.served.resources} == {NAME}
    assert node.served.has(NAME)
    assert [each.status for each in found.conditions if each.type == Condition.WATCHES_CURRENT] == ["True"]
    # there is nothing to wait for
    assert node.served.next_deadline(node.now) == math.inf
    assert not node.served.has("example.com/other")


def test_a_pool_that_loses_its_slices_stays_for_a_moment_and_is_gone_then() -> None:
    node = Node()
    node.put("s", ["a"])
    node.begin("s")
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
    node = Node()
    node.held.rows[KEY] = [row("p", "a")]
    node.put("s", ["a"])
    node.begin("s")
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
    node = Node()
    node.put("s", ["a"], count=2)
    node.begin("s")
    assert node.reason() == Reason.SERVED_BY_DRA
    assert node.served.next_deadline(node.now) == node.now + INCOMPLETE_SECONDS
    # also where it changes all the time
    node.passes(INCOMPLETE_SECONDS / 2)
    node.put("s", ["a", "b"], count=2, generation=2)
    assert node.passes(INCOMPLETE_SECONDS / 2) == {NAME}
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


def test_slices_that_a_list_lacks_are_gone() -> None:
    node = Node()
    node.put("s", ["a"])
    node.put("t", ["b"], driver="nic.example.com")
    node.begin("s", "t")
    assert node.begin("s") == {"nic.example.com/devices"}
    node.passes(GONE_SECONDS)
    assert (node.state(), node.state("nic.example.com/devices")) == ("Running", "Gone")


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


# -- names --------------------------------------------------------------------------------------------------------------------


def test_names_stay_as_they_were_before_a_start() -> None:
    first = Node()
    first.put("s", ["a"], pool="gpus")
    first.put("t", ["b"], pool=f"{NODE}-gpus")
    first.begin("s", "t")
    found = dict(first.served.names)
    assert len(set(found.values())) == 2
    again = Node(found)
    again.put("t", ["b"], pool=f"{NODE}-gpus")
    again.put("s", ["a"], pool="gpus")
    again.begin("s", "t")
    assert again.served.names == found


def test_a_name_that_others_give_out_is_no_pools() -> None:
    node = Node()
    node.taken = {NAME}
    node.put("s", ["a"])
    node.begin("s")
    [name] = node.served.resources
    assert name.startswith(f"{NAME}-")
    assert not node.served.has(NAME)
    # also where they come later
    other = Node()
    other.put("s", ["a"])
    other.begin("s")
    other.taken = {NAME}
    assert not other.served.has(NAME)
    assert other.put("s", ["a", "b"]) == {name}
    assert {*other.served.resources} == {name}
    assert other.status(NAME) is None
    assert other.state(name) == "Running"


def test_a_driver_with_capitals_has_a_lower_case_name_and_is_shown_whole() -> None:
    node, mixed = Node(), DRIVER.title()
    node.put("s", ["a"], driver=mixed)
    node.begin("s")
    assert node.served.names == {(mixed, NODE): NAME}
    found = node.status()
    assert found is not None
    assert (found.driver, found.pool, found.total) == (mixed, NODE, 1)
    # a driver whose name differs in that alone has another name, and its own devices
    node.put("t", ["b", "c"])
    other = node.served.names[KEY]
    assert other.startswith(f"{NAME}-")
    found = node.status(other)
    assert found is not None
    assert (found.driver, found.total) == (DRIVER, 2)
    # an agent whose state was lost knows it by its NodeDevice
    again = Node()
    again.served.remember(NAME, NodeDeviceStatus(driver=mixed, pool=NODE))
    assert again.served.names == {(mixed, NODE): NAME}


def test_the_names_of_drivers_that_differ_in_capitals_alone_count_as_of_one() -> None:
    known = {(DRIVER.title(), f"p{n}"): f"{DRIVER}/p{n}" for n in range(2)}
    node = Node()
    node.served.places.others = lambda: {f"example.com/r{n}": False for n in range(MAX_NAMES - 3)}
    for number, (driver, pool) in enumerate(known):
        node.put(f"s{number}", ["a"], driver=driver, pool=pool)
    node.begin(*(f"s{number}" for number in range(2)))
    assert node.served.names == known
    for driver in (DRIVER.upper(), "a.example.com"):
        node.served.pools.put(a_slice(driver, ["a"], driver=driver, pool="p"))
    # the one place that is left is the driver's without any, whatever the order of their names
    node.passes(0)
    assert {*node.served.names.values()} == {*known.values(), "a.example.com/p"}


def test_pools_have_a_place_among_the_names_of_the_node() -> None:
    node, own = Node(), {f"example.com/r{n}": Resource(f"example.com/r{n}") for n in range(MAX_NAMES - 1)}
    places = Places(own, {})
    share([places, node.served.places], [])
    node.put("s", ["a"])
    node.put("t", ["b"], driver="nic.example.com")
    node.begin("s", "t")
    assert {*node.served.resources} == {NAME}
    assert node.served.without_place == {("nic.example.com", NODE)}
    assert len(places.taken()) == MAX_NAMES
    # one leaves, and the other one is shown
    del own["example.com/r0"]
    assert node.served.next_deadline(node.now) < node.now + 60
    assert node.passes(60) == {"nic.example.com/devices"}
    assert node.served.without_place == set()


def test_a_driver_that_invents_pools_leaves_a_place_to_another() -> None:
    node = Node()
    node.held.rows[DRIVER, "p299"] = [row("p", "a")]
    for n in range(300):
        node.put(f"s{n}", ["a"], pool=f"p{n}")
    node.begin(*(f"s{n}" for n in range(300)))
    assert len(node.served.resources) == MAX_NAMES
    # not one of its own for another of its own
    assert node.passes(60) == set()
    assert node.put("other", ["b"], driver="nic.example.com") == {loser := f"{DRIVER}/p{MAX_NAMES - 1}"}
    assert node.reason(loser) == Reason.PLACE_TAKEN
    # it is waited for that this one is deleted
    assert node.passes(60) == set()
    assert node.served.forget(loser)
    assert node.passes(60) == {"nic.example.com/devices"}
    assert node.state("nic.example.com/devices") == "Running"
    # a second one
    assert len(node.put("third", ["c"], driver="third.example.com")) == 1


def test_no_more_than_one_place_a_minute_is_taken_and_none_that_is_held_or_of_others() -> None:
    node = Node()
    node.served.places.others = lambda: {f"example.com/r{n}": False for n in range(MAX_NAMES - 2)}
    node.held.rows[KEY] = [row("p", "a")]
    node.put("s", ["a"])
    node.put("t", ["a"], pool="free")
    node.begin("s", "t")
    assert node.put("u", ["b"], driver="b.example.com") == {f"{DRIVER}/free"}
    assert node.served.forget(f"{DRIVER}/free")
    assert node.put("u", ["b", "c"], driver="b.example.com") == {"b.example.com/devices"}
    # what is left is held, or of others, or all that a driver has
    node.now += 600
    assert node.put("v", ["c"], driver="c.example.com") == set()
    assert node.passes(600) == set()


def test_a_new_pool_gets_no_name_that_another_had_before_the_start() -> None:
    known = {(DRIVER, f"{NODE}-gpus"): f"{DRIVER}/gpus"}
    node = Node(known)
    node.put("s", ["a"], pool="gpus")
    node.put("t", ["b"], pool=f"{NODE}-gpus")
    node.begin("s", "t")
    assert node.served.names[DRIVER, f"{NODE}-gpus"] == f"{DRIVER}/gpus"
    assert node.served.names[DRIVER, "gpus"].startswith(f"{DRIVER}/gpus-")


def test_a_pool_whose_place_is_anothers_is_deleted_and_waits_for_one() -> None:
    node = Node()
    node.put("s", ["a"])
    node.begin("s")
    assert node.served.displaced([NAME, "example.com/none"], "example.com/gpu") == {NAME}
    assert (node.state(), node.reason()) == ("Gone", Reason.PLACE_TAKEN)
    node.put("s", ["a", "b"])
    assert node.reason() == Reason.PLACE_TAKEN
    assert node.served.forget(NAME)
    assert node.passes(1) == {NAME}
    assert node.reason() == Reason.SERVED_BY_DRA


def test_what_pods_hold_is_needed_and_the_rest_may_lose_its_place() -> None:
    node = Node()
    node.held.rows[KEY] = [row("p", "a")]
    node.put("s", ["a"])
    node.put("t", ["b"], driver="nic.example.com")
    node.begin("s", "t")
    assert node.served.places.own() == {NAME: True, "nic.example.com/devices": False}
    node.held.rows[KEY] = []
    node.served.held_changed(KEY, node.now)
    assert node.served.places.own()[NAME] is False


def test_the_resources_have_states_by_which_they_are_parked() -> None:
    node = Node()
    node.put("s", ["a"])
    node.begin("s")
    states = [node.served.resources[NAME].state]
    node.served.removed("s", node.now)
    node.passes(GONE_SECONDS)
    states.append(node.served.resources[NAME].state)
    assert states == [EndpointState.RUNNING, EndpointState.GONE]


def test_a_cordon_is_reported_until_it_is_gone() -> None:
    node = Node()
    node.put("s", ["a"])
    node.begin("s")
    node.served.cordoned(NAME, {"a": None})
    assert node.reason() == Reason.CORDON_NOT_POSSIBLE
    node.served.cordoned(NAME, {})
    assert node.reason() == Reason.SERVED_BY_DRA


@pytest.mark.parametrize("driver", ["nodedevice.io", "", "No_Name"])
def test_other_drivers_have_none(driver: str) -> None:
    node = Node()
    assert node.put("s", ["a"], driver=driver) == set()
    assert node.begin("s") == set()
    assert node.served.resources == {}
