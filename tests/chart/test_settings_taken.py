"""Settings that a program would end on are refused by helm already; what helm takes, the program reads as it was meant."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from nodedevice_agent import settings as agent_settings
from nodedevice_agent.settings import read_topology
from nodedevice_operator import settings as operator_settings
from nodedevice_operator.errors import OperatorSettingsError

from tests.chart.rendering import named, refusal, render

pytestmark = pytest.mark.cluster

Values = dict[str, Any]

# what YAML has other ideas about than whoever wrote it; some of it only one of two YAML libraries
ODD = [r"=", r"<>&", r"1_000", r"12:30:45", r"0o14", r"y", r"~", r"<<", r"!x", r"1e3", r".inf", r"'", r'"', r"\n", r"é"]
ODD += ["\u2028", "\x85", "\ufeff", "a: b", "# x", "- x", " lead", "\n lead"]
ODD += ["two\nlines\n", "tab\there", "\r\n", "{{ .Release.Name }}"]


def simulated(*names: str, **more: Any) -> Values:
    return {"plugins": {"simulated": [{"resourceName": name, **more} for name in names or ("example.com/gpu",)]}}


def group(**more: Any) -> Values:
    found = {"paths": [{"path": "/dev/a"}], **more}
    return {"plugins": {"generic": [{"resourceName": "example.com/serial", "groups": [found]}]}}


def path(**more: Any) -> Values:
    return group(paths=[{"path": "/dev/a", **more}])


def mount(**more: Any) -> Values:
    return group(mounts=[{"hostPath": "/run/a", **more}])


def select(**more: Any) -> Values:
    return {"plugins": {"generic": [{"resourceName": "example.com/serial", "groups": [{"select": more}]}]}}


def nvml(**more: Any) -> Values:
    return {"plugins": {"nvml": more}}


def shared(**rule: Any) -> Values:
    return nvml(sharing=[rule])


def read(config: Values, folder: Path) -> agent_settings.AgentSettings:
    """What the agent reads of the file that the chart makes of this."""
    file = folder / "agent.yaml"
    data = named("ConfigMap", "nodedevice-agent", {"agents": {"config": config}})["data"]
    file.write_text(data["agent.yaml"], encoding="utf-8")
    return agent_settings.load(file, {"node_name": "node-a"})


def meant(config: Values) -> agent_settings.AgentSettings:
    """The settings, without any file in between; with what the chart says where nothing else is set."""
    return msgspec.convert({"nodeName": "node-a", "delivery": "auto", **config}, agent_settings.AgentSettings)


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(simulated("a/b", f"{'a' * 63}.{'b' * 63}/{'C' * 63}", f"{'a.' * 121}bc/x_.-y"), id="resource names"),
        pytest.param(path(path="/dev/*/?[a-c]*x*"), id="wildcards"),
        pytest.param(mount(hostPath="/", containerPath="/host/", readOnly=True), id="mount"),
        pytest.param(select(usb={"vendor": "046D", "product": "", "serial": "A*", "port": "1-2.*"}), id="USB"),
        pytest.param(select(udev={"ID_SERIAL": "a b*", "ID_V4L_CAPABILITIES": "*:capture:*"}), id="udev"),
        pytest.param(
            nvml(
                mig="mixed",
                sharing=[
                    {"models": ["*T4*"], "shares": {"replicas": 1000, "renameByDefault": True, "mps": {}}},
                    {"indexes": [0, 1], "whole": {"resourceName": ""}},
                    {"indexes": [2], "memory": {"unit": "512Mi", "reserve": "0Mi", "choice": "spread", "advertise": "largest"}},
                    {"indexes": [3], "models": ["*A100*"], "memory": {"unit": "512Mi", "choice": "spread", "advertise": "largest"}},
                ],
            ),
            id="shared GPUs",
        ),
        pytest.param({"allocateRetry": {"a.b/c": "never", "*": "always"}}, id="a word for each resource"),
        pytest.param({"numaNodes": "", "runtimeGraceSeconds": 0.00001, "flappingWindowSeconds": 1e-7}, id="small numbers"),
    ],
)  # fmt: skip
def test_what_the_agent_takes_helm_takes(config: Values, tmp_path: Path) -> None:
    assert read(config, tmp_path) == meant(config)


@pytest.mark.parametrize("nodes", ["0008-0010,1", " 1000-1023 , 0 "])
def test_numa_nodes_that_the_agent_takes_helm_takes(nodes: str) -> None:
    assert read_topology("none", "container", nodes).numa_nodes
    assert render({"agents": {"config": {"numaNodes": nodes}}})


def test_texts_arrive_as_they_are(tmp_path: Path) -> None:
    config = group(env={f"V{number}": text for number, text in enumerate(ODD)} | {"y": "1", "null": "2", "NO": "3"})
    assert read(config, tmp_path) == meant(config)


@pytest.mark.parametrize(
    ("resource", "sentence"),
    [
        ("gpu", "at '/operator/config/heldDevicePolicy': additional properties 'gpu' not allowed"),
        ("kubernetes.io/gpu", "heldDevicePolicy: kubernetes.io/gpu: names in kubernetes.io are reserved"),
    ],
)
def test_what_the_operator_refuses_helm_refuses(resource: str, sentence: str, tmp_path: Path) -> None:
    config = {"heldDevicePolicy": {resource: "report"}}
    file = tmp_path / "operator.yaml"
    file.write_bytes(msgspec.json.encode(config))
    with pytest.raises(OperatorSettingsError):
        operator_settings.load(file, {})
    assert sentence in refusal({"operator": {"config": config}})


@pytest.mark.parametrize("seconds", [0.00001, 3_000_000, 1e21])
def test_numbers_arrive_as_they_are(seconds: float, tmp_path: Path) -> None:
    config = {
        "evictionDelaySeconds": seconds,
        "agentGraceSeconds": seconds,
        "heldDevicePolicy": {"*": "report", "a.b/1e5": "report"},
    }
    file = tmp_path / "operator.yaml"
    data = named("ConfigMap", "nodedevice-operator", {"operator": {"config": config}})["data"]
    file.write_text(data["operator.yaml"], encoding="utf-8")
    meant = msgspec.convert({**config, "instance": "nodedevice"}, operator_settings.OperatorSettings)
    assert operator_settings.load(file, {}) == meant
