"""Which Xids are too new for the driver's answer to count."""

from nodedevice_agent.plugins.nvml.reader.settling import Settling


def test_an_xid_is_settled_after_a_second() -> None:
    settling = Settling(0.0)
    assert settling.next_due() is None
    assert settling.seen("a", 79, 10.0)
    assert settling.next_due() == 11.0
    assert settling.unsettled("a", 10.0) == (79,)
    assert settling.unsettled("a", 10.999) == (79,)
    assert settling.unsettled("a", 11.0) == ()
    assert settling.take_due(10.999) == set()
    assert settling.take_due(11.0) == {"a"}
    assert settling.next_due() is None


def test_the_same_xid_again_is_settled_with_the_first() -> None:
    settling = Settling(0.0)
    assert settling.seen("a", 79, 10.0)
    assert not settling.seen("a", 79, 10.5)
    assert settling.next_due() == 11.0
    settling.take_due(11.0)
    assert settling.seen("a", 79, 11.0)


def test_kinds_and_gpus_are_apart() -> None:
    settling = Settling(0.0)
    settling.seen("a", 79, 10.0)
    assert settling.seen("a", 48, 10.5)
    assert settling.seen("b", 79, 10.75)
    assert [settling.unsettled(uuid, 10.75) for uuid in "abc"] == [(48, 79), (79,), ()]
    assert settling.unsettled("a", 11.0) == (48,)
    assert settling.next_due() == 11.0
    assert settling.take_due(11.6) == {"a"}
    assert settling.take_due(11.75) == {"b"}


def test_in_its_first_second_a_reader_knows_of_no_xid_before() -> None:
    settling = Settling(5.0)
    assert settling.unsettled("a", 5.999) is None
    assert settling.unsettled("a", 6.0) == ()
