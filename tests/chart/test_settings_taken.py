"""Settings that a program would end on are refused by helm already; what helm takes, the program reads as it was meant."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from nodedevice_agent import settings as agent_settings
from nodedevice_agent.errors import AgentSettingsError
from nodedevice_agent.settings import read_topology
from nodedevice_operator import settings as operator_settings
from nodedevice_operator.errors import OperatorSettingsError

from tests.chart.rendering import refusal, render

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


REFUSED = {
    "a name of Kubernetes": (
        simulated("foo.kubernetes.io/gpu"),
        "resourceName foo.kubernetes.io/gpu: names in kubernetes.io",
    ),
    "a quota's name": (
        simulated("requests.example.com/gpu"),
        "resourceName requests.example.com/gpu: a name that begins with",
    ),
    "upper-case domain": (simulated("EXAMPLE.com/gpu"), "simulated/0/resourceName'"),
    "two slashes": (simulated("example.com/a/b"), "simulated/0/resourceName'"),
    "long label": (simulated(f"{'e' * 64}.com/gpu"), "simulated/0/resourceName'"),
    "long domain": (simulated(f"{'a.' * 122}e/gpu"), "simulated/0/resourceName'"),
    "long name": (simulated(f"example.com/{'g' * 64}"), "simulated/0/resourceName'"),
    "a name twice": (simulated("example.com/gpu", "example.com/gpu"), "resourceName example.com/gpu is named twice"),
    "a GPU's name twice": (
        {"plugins": {"simulated": [{"resourceName": "nvidia.com/gpu"}], "nvml": {}}},
        "resourceName nvidia.com/gpu is named twice",
    ),
    "prefix": (simulated(idPrefix="-x"), "simulated/0/idPrefix'"),
    "long prefix": (simulated(idPrefix="x" * 55), "simulated/0/idPrefix'"),
    "out of /dev": (path(path="/dev/../etc/shadow"), "paths/0/path'"),
    "ends in ..": (path(path="/dev/.."), "paths/0/path'"),
    "two slashes in a path": (path(path="/dev//a"), "paths/0/path'"),
    "a directory": (path(path="/dev/"), "paths/0/path'"),
    "two stars": (path(path="/dev/**"), "paths/0/path'"),
    "a letter twice": (path(permissions="rr"), "paths/0/permissions'"),
    "no permission": (path(permissions=""), "paths/0/permissions'"),
    "relative in the container": (path(mountPath="x"), "paths/0/mountPath'"),
    "relative on the host": (mount(hostPath="run"), "mounts/0/hostPath'"),
    "a mount's way up": (mount(containerPath="/a/../b"), "mounts/0/containerPath'"),
    "variable": (group(env={"1 A": "x"}), "groups/0/env': additional properties '1 A' not allowed"),
    "host's root": ({"plugins": {"hostRoot": "/a/../b"}}, "/agents/config/plugins/hostRoot'"),
    "paths and a selection": (group(select={"subsystems": ["tty"]}), "needs either paths or select, and not both"),
    "neither paths nor a selection": (
        {"plugins": {"generic": [{"resourceName": "example.com/serial", "groups": [{}]}]}},
        "a group of example.com/serial needs either paths or select",
    ),
    "a selection of nothing": (select(), "a select that selects nothing: set usb, udev or subsystems"),
    "a selection of no USB device": (select(usb={}), "selects nothing: set vendor, product, serial or port"),
    "a selection of USB devices by no name": (select(usb={"vendor": ""}), "selects nothing: set vendor, product"),
    "a selection of plain files": (
        {
            "plugins": {
                "generic": [
                    {"resourceName": "a.b/c", "groups": [{"select": {"subsystems": ["tty"]}, "allowFiles": True}]}
                ]
            }
        },
        "allowFiles: remove allowFiles",
    ),
    "a vendor's number without quotes": (select(usb={"vendor": 403}), "select/usb/vendor': got number, want string"),
    "a vendor's number of three digits": (select(usb={"vendor": "403"}), "select/usb/vendor'"),
    "a property's name": (
        select(udev={"ID SERIAL": "x"}),
        "select/udev': additional properties 'ID SERIAL' not allowed",
    ),
    "a subsystem's name": (select(subsystems=["tty/x"]), "select/subsystems/0'"),
    "relative path of a selection": (select(subsystems=["tty"], mountPath="x"), "select/mountPath'"),
    "GPU's name": (nvml(resourceName="gpu"), "/agents/config/plugins/nvml/resourceName'"),
    "a model's name": (nvml(modelResourceNames={"*T4*": "t4"}), "nvml/modelResourceNames/*T4*'"),
    "a model's name of Kubernetes": (
        nvml(modelResourceNames={"*T4*": "kubernetes.io/t4"}),
        "resourceName kubernetes.io/t4: names in",
    ),
    "CDI kind": (nvml(cdiKind="x"), "/agents/config/plugins/nvml/cdiKind'"),
    "relative library": (nvml(libraryDir="rel"), "/agents/config/plugins/nvml/libraryDir'"),
    "no such MIG strategy": (nvml(mig="some"), "/agents/config/plugins/nvml/mig'"),
    "no replicas": (shared(shares={"replicas": 0}), "nvml/sharing/0/shares/replicas'"),
    "a use that is null": (shared(memory=None), "sharing[0]: a GPU has one use, and none is named; name one of whole"),
    "no use": (shared(indexes=[0]), "sharing[0]: a GPU has one use, and none is named; name one of whole, shares"),
    "two uses": (shared(whole={}, memory={}), "sharing[0]: a GPU has one use, and whole and memory is named"),
    "a unit of GB": (shared(memory={"unit": "1G"}), "nvml/sharing/0/memory/unit'"),
    "a share's name": (shared(shares={"replicas": 2, "resourceName": "gpu"}), "nvml/sharing/0/shares"),
    "a unit's name of Kubernetes": (
        shared(memory={"resourceName": "kubernetes.io/gpu-mem"}),
        "resourceName kubernetes.io/gpu-mem: names in",
    ),
    "a unit's name twice": (
        {"plugins": {"simulated": [{"resourceName": "aliyun.com/gpu-mem"}], "nvml": {"sharing": [{"memory": {}}]}}},
        "resourceName aliyun.com/gpu-mem is named twice",
    ),
    "a GPU's name twice, though all are shared": (
        {"plugins": {"simulated": [{"resourceName": "nvidia.com/gpu"}], "nvml": {"sharing": [{"memory": {}}]}}},
        "resourceName nvidia.com/gpu is named twice",
    ),
    "pipes of MPS": (shared(shares={"replicas": 2, "mps": {"pipeDirectory": "mps"}}), "shares/mps/pipeDirectory'"),
    "no resource": (
        {"allocateRetry": {"gpu": "never"}},
        "config/allocateRetry': additional properties 'gpu' not allowed",
    ),
    "a resource of Kubernetes": (
        {"allocateRetry": {"kubernetes.io/gpu": "never"}},
        "agents.config.allocateRetry: kubernetes.io/gpu: names in kubernetes.io",
    ),
    "no such word": ({"allocateRetry": {"a.b/c": "once"}}, "config/allocateRetry/a.b~1c"),
    "two libraries": (nvml(libraryDir="/a:/b"), "/agents/config/plugins/nvml/libraryDir'"),
}


def read(config: Values, folder: Path) -> agent_settings.AgentSettings:
    """What the agent reads of the file that the chart makes of this."""
    file = folder / "agent.yaml"
    file.write_text(rendered({"agents": {"config": config}}, "nodedevice-agent")["agent.yaml"], encoding="utf-8")
    return agent_settings.load(file, {"node_name": "node-a"})


def rendered(values: Values, name: str) -> dict[str, str]:
    [found] = [each for each in render(values) if (each["kind"], each["metadata"]["name"]) == ("ConfigMap", name)]
    return dict(found["data"])


def meant(config: Values) -> agent_settings.AgentSettings:
    """The settings, without any file in between; with what the chart says where nothing else is set."""
    return msgspec.convert({"nodeName": "node-a", "runtime": "auto", **config}, agent_settings.AgentSettings)


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_agent_refuses_helm_refuses(name: str, tmp_path: Path) -> None:
    config, sentence = REFUSED[name]
    file = tmp_path / "agent.yaml"
    file.write_bytes(msgspec.json.encode(config))
    with pytest.raises(AgentSettingsError):
        agent_settings.load(file, {"node_name": "node-a"})
    assert sentence in refusal({"agents": {"config": config}})


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(simulated("a/b", f"{'a' * 63}.{'b' * 63}/{'C' * 63}", f"{'a.' * 121}bc/x_.-y"), id="resource names"),
        pytest.param(simulated(idPrefix="x" * 54), id="prefix"),
        pytest.param(simulated(idPrefix=""), id="no prefix"),
        pytest.param(path(path="/dev/.a/..b/.../c.."), id="dots in a path"),
        pytest.param(path(path="/dev/*/?[a-c]*x*"), id="wildcards"),
        pytest.param(path(permissions="mwr", mountPath="/dev/b/"), id="permissions"),
        pytest.param(path(permissions="w", mountPath=""), id="no mount path"),
        pytest.param(mount(hostPath="/", containerPath="/host/", readOnly=True), id="mount"),
        pytest.param(group(env={"_A.b-c": "x"}), id="variable"),
        pytest.param({"plugins": {"hostRoot": "/host"}}, id="host's root"),
        pytest.param(select(usb={"vendor": "046D", "product": "", "serial": "A*", "port": "1-2.*"}), id="USB"),
        pytest.param(select(udev={"ID_SERIAL": "a b*", "ID_V4L_CAPABILITIES": "*:capture:*"}), id="udev"),
        pytest.param(select(subsystems=["video4linux", "usb"], mountPath="/dev/b/", permissions="rwm"), id="subsystems"),
        pytest.param(nvml(libraryDir="/usr/lib", cdiKind="a.b-c/d_e", modelResourceNames={"*T4*": "x.y/z"}), id="GPUs"),
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
        pytest.param({"numaNodes": "0-1, 4", "podResourcesSocket": ""}, id="NUMA nodes"),
        pytest.param({"numaNodes": "", "runtimeGraceSeconds": 0.00001, "flappingWindowSeconds": 1e-7}, id="small numbers"),
    ],
)  # fmt: skip
def test_what_the_agent_takes_helm_takes(config: Values, tmp_path: Path) -> None:
    assert read(config, tmp_path) == meant(config)


@pytest.mark.parametrize(
    ("nodes", "sentence"),
    [
        ("3-1", "agents.config.numaNodes: 3-1 ends before it begins"),
        ("0, 010-9", "agents.config.numaNodes: 010-9 ends before it begins"),
        ("0-9999", "at '/agents/config/numaNodes': '0-9999' does not match pattern"),
        ("1024", "at '/agents/config/numaNodes': '1024' does not match pattern"),
        ("abc", "at '/agents/config/numaNodes': 'abc' does not match pattern"),
    ],
)
def test_numa_nodes_that_the_agent_refuses_helm_refuses(nodes: str, sentence: str) -> None:
    with pytest.raises(AgentSettingsError):
        read_topology("none", "container", nodes)
    assert sentence in refusal({"agents": {"config": {"numaNodes": nodes}}})


@pytest.mark.parametrize("nodes", ["0", "3-3", "0008-0010,1", " 1000-1023 , 0 ", "999-1019"])
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
        ("**", "at '/operator/config/heldDevicePolicy': additional properties '**' not allowed"),
        (
            "kubernetes.io/gpu",
            "operator.config.heldDevicePolicy: kubernetes.io/gpu: names in kubernetes.io are reserved",
        ),
        ("requests.a/gpu", "operator.config.heldDevicePolicy: requests.a/gpu: a name that begins with requests."),
    ],
)
def test_what_the_operator_refuses_helm_refuses(resource: str, sentence: str, tmp_path: Path) -> None:
    config = {"heldDevicePolicy": {resource: "report"}}
    file = tmp_path / "operator.yaml"
    file.write_bytes(msgspec.json.encode(config))
    with pytest.raises(OperatorSettingsError):
        operator_settings.load(file, {})
    assert sentence in refusal({"operator": {"config": config}})


@pytest.mark.parametrize("seconds", [0.00001, 0.25, 3, 3_000_000, 1e21])
def test_numbers_arrive_as_they_are(seconds: float, tmp_path: Path) -> None:
    config = {
        "evictionDelaySeconds": seconds,
        "agentGraceSeconds": seconds,
        "heldDevicePolicy": {"*": "report", "a.b/1e5": "report"},
    }
    file = tmp_path / "operator.yaml"
    file.write_text(
        rendered({"operator": {"config": config}}, "nodedevice-operator")["operator.yaml"], encoding="utf-8"
    )
    meant = msgspec.convert({**config, "instance": "nodedevice"}, operator_settings.OperatorSettings)
    assert operator_settings.load(file, {}) == meant
