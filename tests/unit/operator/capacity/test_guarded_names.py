"""A name whose pods nothing makes wait for their agent yet: not new on a Node, and never taken off one."""

from nodedevice_operator.capacity.decide import decide
from nodedevice_operator.objects.node import ExtendedResource, NodeRecord

from tests.fakes.operator.operator_model import GPU, node_device

NIC = "example.com/nic"
OURS = ExtendedResource(2, 2, frozenset({"nodedevice-operator"}), frozenset({"nodedevice-operator"}))


def test_a_new_name_waits_and_others_do_not() -> None:
    node = NodeRecord("node-a", "uid-1", 1, {})
    records = [node_device(GPU, available=2), node_device(NIC, available=1)]
    decision = decide(node, records, None, 1000.0, unguarded=frozenset({GPU}))
    assert decision.apply is not None
    assert decision.apply.numbers == {NIC: 1}
    assert decision.statuses[GPU].reason == "PolicyPending"
    assert not decision.statuses[GPU].is_advertised
    with_nic = NodeRecord(
        "node-a", "uid-1", 2, {NIC: ExtendedResource(1, 1, *[frozenset({"nodedevice-operator"})] * 2)}
    )
    later = decide(with_nic, records, decision.history, 1010.0)
    assert later.apply is not None
    assert later.apply.numbers == {GPU: 2, NIC: 1}
    assert later.repairs == ()


def test_what_is_on_the_node_stays_and_follows_its_devices() -> None:
    node = NodeRecord("node-a", "uid-1", 1, {GPU: OURS})
    decision = decide(node, [node_device(GPU, available=1)], None, 1000.0, unguarded=frozenset({GPU}))
    assert decision.apply is not None
    assert decision.apply.numbers == {GPU: 1}
    assert decision.statuses[GPU].is_advertised
