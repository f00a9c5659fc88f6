"""One device that is shared, or listed in parts: who may have it beside whom."""

from nodedevice_agent.devicemanager.resources import availability
from nodedevice_agent.devicemanager.resources.devices import Device

from tests.unit.node_agent.devicemanager.identity_scenario import device, free, offering, offers, own
from tests.unit.node_agent.devicemanager.scenario import GPU, NIC, Scenario, pod


class TestShared:
    def test_while_shares_are_held_nobody_has_it_alone(self) -> None:
        """As an edit of count from 2 to 1 makes it."""
        scenario = offering(device("a-0", "c1:1", shared=True), device("a-1", "c1:1", shared=True)).run(pod("p", gpu=1))
        scenario.lists([device("a", "c1:1")])
        assert free(scenario) == []
        scenario.gone("p")
        assert free(scenario) == ["a"]

    def test_what_a_pod_has_alone_it_has_alone_until_its_end(self) -> None:
        """As an edit makes it that sets `shared`, and over a restart."""
        scenario = offering(device("a", "c1:1")).run(pod("p", gpu=1))
        scenario.lists([device("a", "c1:1", shared=True)])
        offers(scenario, NIC, device("b", "c1:1", shared=True))
        assert free(scenario) == []
        after = scenario.restarted()
        offers(after, NIC, device("b", "c1:1", shared=True))
        offers(after, GPU, device("a", "c1:1", shared=True))
        assert free(after) == []
        for one in (scenario, after):
            one.gone("p")
            assert free(one) == ["a", "b"]
            one.run(pod("q", gpu=1))
            assert free(one) == ["b"]


class TestParents:
    """The IDs of physical devices count within the domain of the resource's name, and of built-in plugins for themselves."""

    def test_nobody_uses_up_anothers_devices_by_naming_them(self) -> None:
        scenario = Scenario()
        scenario.plugin([Device("x", parent="GPU-1")], "evil.test/gpu", 3)
        scenario.plugin([Device("GPU-1", parent="GPU-1")], GPU, 1)
        assert sorted(free(scenario)) == ["GPU-1", "x"]

    def test_a_foreign_plugin_never_counts_against_a_built_in_device(self) -> None:
        """Not even of the same domain."""
        scenario = Scenario()
        scenario.plugin([Device("x", parent="GPU-1")], "example.com/other", 3)
        scenario.plugin([Device("GPU-1", parent="GPU-1", identity=("GPU-1",))], GPU, 1, own("GPUs"))
        assert "GPU-1" in availability.free(scenario.manager.resources[GPU])
        assert "x" in availability.free(scenario.manager.resources["example.com/other"])

    def test_a_renamed_resource_of_a_built_in_plugin(self) -> None:
        """nvidia.com/gpu, held, is org.test/gpu after an edit and a restart."""
        gpu = Device("GPU-1", parent="GPU-1", identity=("GPU-1",))
        after = Scenario.with_plugin([gpu], options=own("GPUs")).run(pod("p", gpu=1)).restarted()
        after.see(pod("p", gpu=1))
        after.plugin([gpu], "org.test/gpu", 1, own("GPUs"))
        assert free(after) == []
        after.gone("p")
        assert free(after) == ["GPU-1"]

    def test_shares_of_a_held_gpu_under_another_name(self) -> None:
        """`nvidia.com/gpu` beside `aliyun.com/gpu-mem` of one GPU."""
        gpu = Device("GPU-1", parent="GPU-1", identity=("GPU-1",))
        scenario = Scenario.with_plugin([gpu], options=own("GPUs")).run(pod("p", gpu=1))
        units = [Device(f"GPU-1-{n}", parent="GPU-1", identity=("GPU-1",), is_shared=True) for n in range(3)]
        scenario.plugin(units, "aliyun.com/gpu-mem", 2, own("GPUs"))
        assert free(scenario) == []
        scenario.gone("p")
        assert free(scenario) == ["GPU-1"]
        scenario.lists([], GPU, 1)
        assert len(free(scenario)) == 3


def test_an_instance_that_is_held_by_another_resource() -> None:
    """As a change of nvml.mig from mixed to single makes it."""
    instances = [Device(f"MIG-{n}", parent="GPU-1", identity=("GPU-1", f"MIG-{n}"), is_shared=True) for n in range(2)]
    scenario = Scenario()
    scenario.plugin(instances, NIC, 2, own("GPUs"))
    scenario.run(pod("p", nic=1))
    scenario.lists([], NIC, 2)
    scenario.plugin(instances, GPU, 1, own("GPUs"))
    assert free(scenario) == ["MIG-1"]


def test_one_of_a_thousand_shares_stands_for_all() -> None:
    """It is held back beside a file that another resource has alone, as each of them is."""
    shares = [Device(f"GPU-1-{n}", parent="GPU-1", identity=("GPU-1", "c195:0"), is_shared=True) for n in range(3)]
    scenario = Scenario.with_plugin(shares, options=own("GPUs")).run(pod("p", gpu=2))
    offers(scenario, NIC, device("file", "c195:0"))
    assert free(scenario) == ["GPU-1-2"]
    scenario.gone("p")
    assert free(scenario) == ["file"]
