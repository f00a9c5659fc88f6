"""What is published of a node whose agent injects nothing."""

import pytest
from nodedevice_agent.delivery.record_only import RecordOnly
from nodedevice_api.names import Reason

from tests.unit.node_agent.devicemanager.scenario import GPU, Scenario


@pytest.mark.parametrize(("advertises", "shown"), [(False, None), (True, ("Unknown", Reason.RUNTIME_NONE))])
def test_devices_that_are_advertised_all_the_same_have_a_condition(
    advertises: bool, shown: tuple[str, str] | None
) -> None:
    found = RecordOnly(advertises=advertises)
    condition = found.injectable(Scenario.with_plugin(1).snapshot())
    assert (condition and condition[:2]) == shown
    assert (found.is_settled, found.notes, found.not_injected("p", "main", GPU)) == (True, "", False)
