"""One device under several names: a cordon counts under each, and an ID does not change while it is held or cordoned."""

from tests.unit.node_agent.devicemanager.identity_scenario import device, free, offering, offers
from tests.unit.node_agent.devicemanager.scenario import GPU, NIC, pod


class TestCordons:
    def test_nobody_gets_it_under_another_name(self) -> None:
        scenario = offering(device("a", "c1:1"))
        offers(scenario, NIC, device("b", "c1:1"), device("c", "c1:2"))
        scenario.cordon(NIC, ["b"])
        assert free(scenario) == ["c"]
        assert "is cordoned there" in scenario.snapshot().devices[0].message
        scenario.disconnect(NIC, 2)
        scenario.passes(3600)
        after = scenario.restarted()
        offers(after, GPU, device("a", "c1:1"))
        assert free(after) == []
        after.cordon(NIC, [])
        assert free(after) == ["a"]

    def test_a_resource_that_is_gone_is_known_as_long_as_it_says_what_is_cordoned(self) -> None:
        scenario = offering(device("b", "c1:1"), name=NIC)
        scenario.cordon(NIC, ["b"])
        scenario.disconnect(NIC, 2)
        scenario.passes(3600)
        assert not scenario.forgets(NIC)
        offers(scenario, GPU, device("a", "c1:1"))
        scenario.cordon(NIC, [])
        assert free(scenario) == ["a"]
        assert scenario.forgets(NIC)

    def test_with_all_of_its_resource(self) -> None:
        scenario = offering(device("b", "c1:1"), name=NIC)
        scenario.cordon(NIC, ["*"])
        offers(scenario, GPU, device("a", "c1:1"))
        assert free(scenario) == []

    def test_a_pod_that_has_it_under_another_name_keeps_it(self) -> None:
        scenario = offering(device("a", "c1:1")).run(pod("p", gpu=1))
        offers(scenario, NIC, device("b", "c1:1"))
        scenario.cordon(NIC, ["b"])
        assert scenario.held() == {"p/main": ("a",)}
        assert scenario.manager.resources[GPU].use.held_back == {}
