"""What NVIDIA's catalog says of Xids, and how often they are logged."""

from nodedevice_agent.plugins.nvml.xids import APPLICATION_XIDS, CRITICAL_XIDS, XidLogLimiter, meaning, named


def test_every_xid_is_on_one_side() -> None:
    assert not set(APPLICATION_XIDS) & set(CRITICAL_XIDS)
    assert meaning(79) == "GPU has fallen off the bus"
    assert meaning(9999) == ""


def test_by_the_catalog_a_contained_error_ends_a_program_and_a_context_switch_timeout_needs_a_reset() -> None:
    assert 94 in APPLICATION_XIDS
    assert 109 in CRITICAL_XIDS


def test_a_name_has_the_meaning_where_that_is_known() -> None:
    assert (named(79), named(9999)) == ("Xid 79 (GPU has fallen off the bus)", "Xid 9999")


def test_a_storm_is_logged_at_once_and_then_once_a_minute() -> None:
    storms = XidLogLimiter()
    bus_id = [storms.seen("a", 31, 10, now=second * 0.1) for second in range(1000)]
    assert bus_id[0] == 10
    assert [count for count in bus_id if count] == [10, 10 * 600]
    assert storms.seen("b", 31, 1, now=1.0) == 1


def test_kinds_are_bounded() -> None:
    storms = XidLogLimiter()
    for xid in range(1001):
        assert storms.seen("a", xid, 1, now=0.0) == 1
    # the oldest was forgotten, the others were not
    assert storms.seen("a", 1000, 1, now=1.0) == 0
    assert storms.seen("a", 1, 1, now=1.0) == 0
    assert storms.seen("a", 0, 1, now=1.0) == 1
