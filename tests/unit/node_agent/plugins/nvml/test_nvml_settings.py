"""Settings of the nvml plugin: their meaning, and errors that name the key."""

from typing import Any

import msgspec
import pytest
from nodedevice_agent.plugins.settings import PluginSettings


def test_all_settings_have_defaults() -> None:
    nvml = msgspec.convert({"nvml": {}}, PluginSettings).nvml
    assert nvml is not None
    assert nvml.resource_names() == ("nvidia.com/gpu",)
    assert nvml.hand_over == ["env"]
    assert msgspec.convert({}, PluginSettings).nvml is None


def test_names_by_model() -> None:
    nvml = msgspec.convert(
        {"nvml": {"modelResourceNames": {"*T4*": "nvidia.com/t4", "Tesla*": "nvidia.com/old"}}}, PluginSettings
    ).nvml
    assert nvml is not None
    models = ["Tesla T4", "Tesla V100", "NVIDIA H100"]
    assert [nvml.resource_of(model) for model in models] == ["nvidia.com/t4", "nvidia.com/old", "nvidia.com/gpu"]
    assert nvml.resource_names() == ("nvidia.com/gpu", "nvidia.com/t4", "nvidia.com/old")


@pytest.mark.parametrize(
    ("raw", "named"),
    [
        ({"resourceName": "gpu"}, "resourceName"),
        ({"modelResourceNames": {"*": "kubernetes.io/gpu"}}, "resourceName"),
        ({"handOver": ["magic"]}, "handOver"),
        ({"handOver": []}, "handOver"),
        ({"cdiKind": "gpu"}, "cdiKind"),
        ({"libraryDir": "lib:lib64"}, "libraryDir"),
        ({"libraryDir": "/lib\0/nvidia"}, "libraryDir"),
        ({"libraryDir": "/lib\n"}, "libraryDir"),
        ({"criticalXids": [31], "harmlessXids": [31]}, "harmlessXids: 31"),
        ({"criticalXids": [-1]}, "criticalXids"),
        ({"eccErrors": "maybe"}, "eccErrors"),
        ({"pollSeconds": 0.1}, "pollSeconds"),
        ({"polSeconds": 5}, "polSeconds"),
    ],
)
def test_refused(raw: dict[str, Any], named: str) -> None:
    with pytest.raises(match=named):
        msgspec.convert({"nvml": raw}, PluginSettings)


def test_one_name_has_one_plugin() -> None:
    raw = {"nvml": {}, "simulated": [{"resourceName": "nvidia.com/gpu"}]}
    with pytest.raises(match="named twice"):
        msgspec.convert(raw, PluginSettings)
