from typing import Any

import msgspec
import pytest
from nodedevice_agent.plugins.settings import GroupSettings, MountSettings, PathSettings, PluginSettings
from nodedevice_api.parts import Advertise, Choice, PartRules, Placement, PodPlacement


def generic(name: str = "example.com/serial", **group: Any) -> dict[str, Any]:
    return {"generic": [{"resourceName": name, "groups": [{"paths": [{"path": "/dev/ttyUSB*"}], **group}]}]}


def path(**values: Any) -> dict[str, Any]:
    return generic(paths=[{"path": "/dev/x", **values}])


def select(group: dict[str, Any] | None = None, **values: Any) -> dict[str, Any]:
    return {"generic": [{"resourceName": "example.com/serial", "groups": [{"select": values, **(group or {})}]}]}


def simulated(**values: Any) -> dict[str, Any]:
    return {"simulated": [{"resourceName": "example.com/gpu", **values}]}


def shared(*rules: dict[str, Any]) -> dict[str, Any]:
    return {"nvml": {"sharing": list(rules)}}


def test_no_plugin_is_configured_by_default() -> None:
    assert msgspec.convert({}, PluginSettings) == PluginSettings()
    assert PluginSettings().generic == []
    assert PluginSettings().simulated == []


def test_all_of_a_group() -> None:
    raw = generic(
        paths=[{"path": "/dev/video*", "mountPath": "/dev/camera", "permissions": "r"}],
        count=3,
        mounts=[{"hostPath": "/run/a"}, {"hostPath": "/run/b", "containerPath": "/c", "readOnly": True}],
        env={"KEY": "value"},
        allowFiles=True,
    )
    (group,) = msgspec.convert(raw, PluginSettings).generic[0].groups
    assert group == GroupSettings(
        [PathSettings("/dev/video*", "/dev/camera", "r")],
        3,
        [MountSettings("/run/a"), MountSettings("/run/b", "/c", True)],
        {"KEY": "value"},
        True,
    )


def test_defaults() -> None:
    (group,) = msgspec.convert(generic(), PluginSettings).generic[0].groups
    assert group == GroupSettings([PathSettings("/dev/ttyUSB*", "", "rw")])
    assert msgspec.convert(simulated(), PluginSettings).simulated[0].prefix() == "gpu"


@pytest.mark.parametrize(
    ("group", "is_shared"),
    [({}, False), ({"shared": True}, True), ({"count": 2}, True), ({"count": 2, "shared": True}, True)],
)
def test_a_group_is_shared_if_it_says_so_or_several_may_hold_a_device(group: dict[str, Any], is_shared: bool) -> None:
    (found,) = msgspec.convert(generic(**group), PluginSettings).generic[0].groups
    assert found.is_shared == is_shared


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


def test_all_settings_of_nvml_have_defaults() -> None:
    nvml = msgspec.convert({"nvml": {}}, PluginSettings).nvml
    assert nvml is not None
    assert nvml.resource_names() == ("nvidia.com/gpu",)
    assert nvml.hand_over == ["auto"]
    assert msgspec.convert({}, PluginSettings).nvml is None


def test_gpus_have_names_by_model() -> None:
    nvml = msgspec.convert(
        {"nvml": {"modelResourceNames": {"*T4*": "nvidia.com/t4", "Tesla*": "nvidia.com/old"}}}, PluginSettings
    ).nvml
    assert nvml is not None
    models = ["Tesla T4", "Tesla V100", "NVIDIA H100"]
    assert [nvml.resource_of(model) for model in models] == ["nvidia.com/t4", "nvidia.com/old", "nvidia.com/gpu"]
    assert nvml.resource_names() == ("nvidia.com/gpu", "nvidia.com/t4", "nvidia.com/old")


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (simulated(count=101, partsPerDevice=100), ["partsPerDevice: 101 devices of 100 parts", "10000 parts at most"]),
        (simulated(partsPerDevice=0), ["partsPerDevice", ">= 1"]),
        (simulated(parts={"placement": "SameParent"}), ["'SameParent'", "placement"]),
        (path(path="dev/x"), ["path: 'dev/x'", "absolute", "generic[0].groups[0].paths[0]"]),
        (path(path="/dev/../etc"), ["without .."]),
        (path(path="/dev/"), ["names a directory"]),
        (path(path="/dev/**/x"), ["one * per level"]),
        (path(path="/dev/" + "*a" * 9), ["more than 8 wildcards"]),
        (path(path="/dev/" + "a" * 5000), ["4096"]),
        (path(permissions="x"), ["permissions: 'x'", "try rw"]),
        (path(permissions=""), ["permissions: ''"]),
        (path(permissions="rr"), ["each once"]),
        (path(mountPath="camera"), ["mountPath: 'camera'"]),
        (path(permission="rw"), ["unknown field `permission`"]),
        (generic(count=0), [">= 1", "groups[0].count"]),
        (generic(count=1001), ["<= 1000"]),
        (generic(paths=[]), ["groups[0].paths"]),
        (generic(env={"A B": "x"}), ["env: 'A B'"]),
        (generic(env={"A": 1}), ["Expected `str`", "env"]),
        (generic(mounts=[{"hostPath": "x"}]), ["hostPath: 'x'", "mounts[0]"]),
        (generic(paths=[{"path": "/dev/a*"}, {"path": "/dev/b*c*"}]), ["same number of wildcards"]),
        (generic("serial"), ["resourceName: 'serial'", "domain/name", "generic[0]"]),
        (generic("nodes.kubernetes.io/serial"), ["reserved"]),
        (
            {"generic": [{"resourceName": "a.b/c", "groups": [{"paths": [{"path": "/dev/x"}]}] * 2}]},
            ["two groups of a.b/c are named after /dev/x"],
        ),
        (select(), ["select: selects nothing", "usb, udev or subsystems", "groups[0].select"]),
        (select(usb={}), ["usb: selects nothing", "vendor, product, serial or port"]),
        (select(usb={"vendor": "403"}), ["vendor: '403'", "four hexadecimal digits in quotes", "lsusb", "select.usb"]),
        (select(usb={"vendor": 403}), ["Expected `str`", "select.usb.vendor"]),
        (select(usb={"product": "60zz"}), ["product: '60zz'"]),
        (select(usb={"serial": "*a" * 9}), ["serial: ", "more than 8 wildcards"]),
        (select(usb={"port": "*a" * 9}), ["port: ", "more than 8 wildcards"]),
        (select(usb={"vendorId": "0403"}), ["unknown field `vendorId`"]),
        (select(udev={"ID SERIAL": "x"}), ["udev: 'ID SERIAL'", "udevadm info"]),
        (select(udev={"ID_SERIAL": "*a" * 9}), ["udev: ID_SERIAL: ", "more than 8 wildcards"]),
        (select(subsystems=["tty/x"]), ["subsystems: 'tty/x'", "/sys/class"]),
        (select(subsystems=["tty"], mountPath="x"), ["mountPath: 'x'"]),
        (select(subsystems=["tty"], permissions="x"), ["permissions: 'x'", "try rw"]),
        (generic(select={"subsystems": ["tty"]}), ["either paths or select"]),
        ({"generic": [{"resourceName": "a.b/c", "groups": [{}]}]}, ["either paths or select", "groups[0]"]),
        (select({"allowFiles": True}, subsystems=["tty"]), ["allowFiles: is for paths", "remove it"]),
        (
            {"generic": [{"resourceName": "a.b/c", "groups": [{"select": {"subsystems": ["tty"]}}] * 2}]},
            ["two groups of a.b/c are named after select", "tty"],
        ),
        (simulated(count=-1), ["simulated[0].count"]),
        (simulated(count="many"), ["Expected `int`"]),
        (simulated(idPrefix="a/b"), ["idPrefix: 'a/b'"]),
        (simulated(numaNodes=65), ["simulated[0].numaNodes"]),
        ({**simulated(), **generic("example.com/gpu")}, ["example.com/gpu is named twice"]),
        ({"hostRoot": "host"}, ["hostRoot: 'host'"]),
        ({"usb": []}, ["unknown field `usb`"]),
        ([], ["Expected `object`"]),
        ({"nvml": {"resourceName": "gpu"}}, ["resourceName"]),
        ({"nvml": {"modelResourceNames": {"*": "kubernetes.io/gpu"}}}, ["resourceName"]),
        ({"nvml": {"handOver": ["magic"]}}, ["handOver"]),
        ({"nvml": {"handOver": []}}, ["handOver"]),
        ({"nvml": {"handOver": ["auto", "env"]}}, ["handOver: auto chooses by itself"]),
        ({"nvml": {"exempt": ["a/b", "a/b/c"]}}, ["exempt[1]: 'a/b/c' must be"]),
        ({"nvml": {"cdiKind": "gpu"}}, ["cdiKind"]),
        ({"nvml": {"libraryDir": "lib:lib64"}}, ["libraryDir"]),
        ({"nvml": {"libraryDir": "/lib\0/nvidia"}}, ["libraryDir"]),
        ({"nvml": {"libraryDir": "/lib\n"}}, ["libraryDir"]),
        ({"nvml": {"criticalXids": [31], "harmlessXids": [31]}}, ["harmlessXids: 31"]),
        ({"nvml": {"criticalXids": [-1]}}, ["criticalXids"]),
        ({"nvml": {"eccErrors": "maybe"}}, ["eccErrors"]),
        ({"nvml": {"pollSeconds": 0.1}}, ["pollSeconds"]),
        ({"nvml": {"polSeconds": 5}}, ["polSeconds"]),
        (shared({"shares": {"replicas": 0}}), [">= 2", "sharing[0].shares.replicas"]),
        (shared({"shares": {"replicas": 1001}}), ["<= 1000"]),
        (shared({"shares": {}}), ["replicas"]),
        (shared({"shares": {"replicas": 2, "mps": {"pipeDirectory": "mps"}}}), ["pipeDirectory: 'mps'", "absolute"]),
        (shared({"memory": {"limits": {"library": "libvgpu.so"}}}), ["limits.library: 'libvgpu.so'", "absolute"]),
        (shared({"memory": {"limits": {"mountPath": ""}}}), ["limits.mountPath: ''", "absolute"]),
        (shared({"memory": {"limits": {"smPercent": 101}}}), ["smPercent", "100"]),
        (shared({"shares": {"replicas": 2, "reserve": "1G"}}), ["reserve: '1G'", "Mi or Gi"]),
        (shared({"models": ["*"]}), ["none is named", "one of whole, shares and memory"]),
        (shared({"whole": {}, "memory": {}}), ["whole and memory is named"]),
        (shared({"memory": {"unit": "1G"}}), ["unit: '1G'", "512Mi"]),
        (shared({"memory": {"unit": "0Gi"}}), ["unit: '0Gi'"]),
        (shared({"memory": {"reserve": "-1Gi"}}), ["reserve: '-1Gi'"]),
        # so long that it is no quantity: it would count as no reserve at all
        (shared({"memory": {"reserve": "9" * 10_000 + "Gi"}}), ["reserve: '999", "Mi or Gi"]),
        (shared({"memory": {"resourceName": "mem"}}), ["resourceName: 'mem'"]),
        (shared({"memory": {}}, {"whole": {}}), ["sharing[1]", "sharing[0]", "one use"]),
        (shared({"models": ["*T4*"], "whole": {}}, {"models": ["*T4*"], "indexes": [0], "memory": {}}), ["one use"]),
        (shared({"models": ["*T4*"], "shares": {"replicas": 2}}), ["nvidia.com/gpu is the name", "renameByDefault"]),
        (
            shared({"indexes": [0], "memory": {}}, {"indexes": [1], "memory": {"unit": "2Gi"}}),
            ["aliyun.com/gpu-mem is the name of other devices already (sharing[0])"],
        ),
        ({"nvml": {"mig": "some"}}, ["mig"]),
        (
            {"nvml": {"mig": "single", "sharing": [{"shares": {"replicas": 2}}]}},
            ["sharing[0]: nvidia.com/gpu is the name of other devices already (mig: single)"],
        ),
        (
            {"nvml": {"mig": "mixed", "sharing": [{"whole": {"resourceName": "nvidia.com/mig-1g.10gb"}}]}},
            ["sharing[0]: nvidia.com/mig-1g.10gb is a name of MIG instances"],
        ),
        ({"nvml": {}, "simulated": [{"resourceName": "nvidia.com/gpu"}]}, ["nvidia.com/gpu is named twice"]),
    ],
)
def test_mistakes_are_named(raw: object, message: list[str]) -> None:
    with pytest.raises(msgspec.ValidationError) as refused:
        msgspec.convert(raw, PluginSettings)
    assert all(words in str(refused.value) for words in message), str(refused.value)
