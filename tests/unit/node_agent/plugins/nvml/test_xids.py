"""What NVIDIA's catalog says of Xids."""

from nodedevice_agent.plugins.nvml.xids import named


def test_a_name_has_the_meaning_where_that_is_known() -> None:
    assert (named(79), named(9999)) == ("Xid 79 (GPU has fallen off the bus)", "Xid 9999")
