"""What NVIDIA's catalog says of Xids."""

from nodedevice_agent.plugins.nvml.xids import APPLICATION_XIDS, CRITICAL_XIDS, named


def test_by_the_catalog_a_contained_error_ends_a_program_and_a_context_switch_timeout_needs_a_reset() -> None:
    assert 94 in APPLICATION_XIDS
    assert 109 in CRITICAL_XIDS


def test_a_name_has_the_meaning_where_that_is_known() -> None:
    assert (named(79), named(9999)) == ("Xid 79 (GPU has fallen off the bus)", "Xid 9999")
