"""By which names pools of DRA drivers have a NodeDevice, and which pools those are where a node has too many names."""

from nodedevice_agent.devicemanager.resource_name_limit import MAX_NAMES, Places, share
from nodedevice_agent.devicemanager.resources.resource import Resource
from nodedevice_api.names import Reason
from nodedevice_api.nodedevice import NodeDeviceStatus

from tests.unit.node_agent.dra.published import DRIVER, KEY, NAME, NODE, row
from tests.unit.node_agent.dra.serving import Node


def test_a_name_that_others_give_out_is_no_pools() -> None:
    node = Node()
    node.taken = {NAME}
    node.put("s", ["a"])
    node.begin("s")
    [name] = node.served.resources
    assert name.startswith(f"{NAME}-")
    assert not node.served.has(NAME)
    # also where they come later
    other = Node.with_pool()
    other.taken = {NAME}
    assert not other.served.has(NAME)
    assert other.put("s", ["a", "b"]) == {name}
    assert {*other.served.resources} == {name}
    assert other.status(NAME) is None
    assert other.state(name) == "Running"
    # it is free for another pool once they give it up
    other.taken = set()
    other.put("t", ["c"], driver=DRIVER.title())
    assert other.served.names[DRIVER.title(), NODE] == NAME
    # they may have come while no agent ran
    again = Node({KEY: NAME})
    again.taken = {NAME}
    again.put("s", ["a"])
    again.begin("s")
    assert {*again.served.resources} == {name}


def test_a_driver_with_capitals_has_a_lower_case_name_and_is_shown_whole() -> None:
    mixed = DRIVER.title()
    node = Node.with_pool(driver=mixed)
    assert node.served.names == {(mixed, NODE): NAME}
    found = node.shown()
    assert (found.driver, found.pool, found.total) == (mixed, NODE, 1)
    # a driver whose name differs in that alone has another name, and its own devices
    node.put("t", ["b", "c"])
    other = node.served.names[KEY]
    assert other.startswith(f"{NAME}-")
    found = node.shown(other)
    assert (found.driver, found.total) == (DRIVER, 2)
    # an agent whose state was lost knows it by its NodeDevice
    again = Node()
    again.served.remember(NAME, NodeDeviceStatus(driver=mixed, pool=NODE))
    assert again.served.names == {(mixed, NODE): NAME}


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
    assert node.now < node.served.next_deadline(node.now) < node.now + 60
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


def test_a_new_pool_gets_no_name_that_another_had_before_the_start() -> None:
    node = Node.with_pool({(DRIVER, f"{NODE}-gpus"): f"{DRIVER}/gpus"}, pool="gpus")
    assert node.served.names[DRIVER, f"{NODE}-gpus"] == f"{DRIVER}/gpus"
    assert node.served.names[DRIVER, "gpus"].startswith(f"{DRIVER}/gpus-")
