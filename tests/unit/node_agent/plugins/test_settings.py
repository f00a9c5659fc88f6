from typing import Any

import msgspec
import pytest
from nodedevice_agent.lib.config_rules import plugins_problems, settings_problems
from nodedevice_agent.plugins.settings import PluginSettings
from nodedevice_api.parts import Advertise, Choice, PartRules, Placement, PodPlacement

from tests.config_cases import MISTAKES, RIGHT, SETTINGS


def generic(name: str = "example.com/serial", **group: Any) -> dict[str, Any]:
    return {"generic": [{"resourceName": name, "groups": [{"paths": [{"path": "/dev/ttyUSB*"}], **group}]}]}


def path(**values: Any) -> dict[str, Any]:
    return generic(paths=[{"path": "/dev/x", **values}])


def simulated(**values: Any) -> dict[str, Any]:
    return {"simulated": [{"resourceName": "example.com/gpu", **values}]}


def test_rules_for_parts() -> None:
    parts = {"placement": "same-parent", "choice": "spread", "containers": "apart", "advertise": "largest"}
    rules = PartRules(Placement.SAME_PARENT, Choice.SPREAD, PodPlacement.APART, Advertise.LARGEST)
    raw = {
        "generic": [
            {"resourceName": f"example.com/{name}", "groups": [{"paths": [{"path": "/dev/x"}], "count": count}], **more}
            for name, count, more in (("a", 2, {"parts": parts}), ("b", 1, {"parts": parts}), ("c", 2, {}))
        ],
        **simulated(count=8, partsPerDevice=80, parts=parts),
    }
    found = msgspec.convert(raw, PluginSettings)
    assert [resource.part_rules for resource in found.generic] == [rules, None, None]
    assert found.simulated[0].part_rules == rules
    assert msgspec.convert(simulated(partsPerDevice=2), PluginSettings).simulated[0].part_rules == PartRules()
    assert msgspec.convert(simulated(parts=parts), PluginSettings).simulated[0].part_rules is None


def test_gpus_have_names_by_model() -> None:
    nvml = msgspec.convert(
        {"nvml": {"modelResourceNames": {"*T4*": "nvidia.com/t4", "Tesla*": "nvidia.com/old"}}}, PluginSettings
    ).nvml
    assert nvml is not None
    models = ["Tesla T4", "Tesla V100", "NVIDIA H100"]
    assert [nvml.resource_of(model) for model in models] == ["nvidia.com/t4", "nvidia.com/old", "nvidia.com/gpu"]
    assert nvml.resource_names() == ("nvidia.com/gpu", "nvidia.com/t4", "nvidia.com/old")


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_named(name: str) -> None:
    plugins, places = MISTAKES[name]
    found = settings_problems({"plugins": plugins})
    assert sorted(sentence.partition(": ")[0] for sentence in found) == sorted(f"plugins.{place}" for place in places)
    assert plugins_problems(plugins, ["plugins"]) == [
        f"spec.{sentence}".replace("belongs below", "belongs below spec.").replace("spec. ", "spec.")
        for sentence in found
    ]


@pytest.mark.parametrize("name", SETTINGS)
def test_mistakes_of_the_agents_own_settings_are_named(name: str) -> None:
    settings, places = SETTINGS[name]
    assert sorted(sentence.partition(": ")[0] for sentence in settings_problems(settings)) == sorted(places)


@pytest.mark.parametrize("plugins", RIGHT.values(), ids=RIGHT)
def test_what_is_right_is_taken(plugins: dict[str, Any]) -> None:
    assert settings_problems({"plugins": plugins}) == plugins_problems(plugins, ["plugins"]) == []
    assert msgspec.convert(plugins, PluginSettings) is not None


@pytest.mark.parametrize(
    "plugins", [None, [], "x", 3, {"generic": 1, "nvml": []}, {"nvml": {"sharing": [1]}, "simulated": "x"}]
)
def test_plugins_of_any_shape_are_refused(plugins: Any) -> None:
    assert plugins_problems(plugins, [])


def test_a_library_is_not_for_a_nodedeviceconfig() -> None:
    [problem] = plugins_problems({"nvml": {"libraryDir": "/usr/lib"}}, ["plugins"])
    assert problem.startswith("spec.plugins.nvml.libraryDir: ")
    assert settings_problems({"plugins": {"nvml": {"libraryDir": "/usr/lib"}}}) == []
