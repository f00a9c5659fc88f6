"""Configurations with mistakes, and the places of these: one table for every entry point."""

from typing import Any, Final

Plugins = dict[str, Any]


def group(**more: Any) -> Plugins:
    return {"generic": [{"resourceName": "example.com/serial", "groups": [{"paths": [{"path": "/dev/a"}], **more}]}]}


def path(**more: Any) -> Plugins:
    return group(paths=[{"path": "/dev/a", **more}])


def select(**more: Any) -> Plugins:
    return {"generic": [{"resourceName": "example.com/serial", "groups": [{"select": more}]}]}


def groups(*found: Plugins) -> Plugins:
    return {"generic": [{"resourceName": "example.com/serial", "groups": [*found]}]}


def simulated(*names: str, **more: Any) -> Plugins:
    return {"simulated": [{"resourceName": name, **more} for name in names or ("example.com/gpu",)]}


def nvml(**more: Any) -> Plugins:
    return {"nvml": more}


def shared(*rules: Plugins, **more: Any) -> Plugins:
    return nvml(sharing=[*rules], **more)


_PATH: Final = "generic[0].groups[0].paths[0]"
_SELECT: Final = "generic[0].groups[0].select"
_USB: Final = f"{_SELECT}.usb"

# By what is wrong: the plugins, and the places of all mistakes. `late` ends the name of one that costs an API server too much: only
# agents refuse it in a NodeDeviceConfig.
MISTAKES: Final[dict[str, tuple[Plugins, list[str]]]] = {
    "a key": (group(cout=2), ["generic[0].groups[0].cout"]),
    "a key of another place": ({"usb": {"vendor": "0403"}}, ["usb"]),
    "no text": (select(usb={"vendor": 259}), [f"{_USB}.vendor"]),
    "no number": (group(count="3"), ["generic[0].groups[0].count"]),
    "a truth value for a number": (group(count=True), ["generic[0].groups[0].count"]),
    "no list": ({"generic": {}}, ["generic"]),
    "null": ({"generic": [None]}, ["generic[0]"]),
    "too little": (group(count=0), ["generic[0].groups[0].count"]),
    "too much": (group(count=1001), ["generic[0].groups[0].count"]),
    "nothing in a list": (groups(), ["generic[0].groups"]),
    "missing": ({"simulated": [{}]}, ["simulated[0].resourceName"]),
    "no domain": (simulated("gpu"), ["simulated[0].resourceName"]),
    "Kubernetes' domain": (simulated("x.kubernetes.io/gpu"), ["simulated[0].resourceName"]),
    "a quota": (simulated("requests.example.com/gpu"), ["simulated[0].resourceName"]),
    "upper case": (simulated("Example.com/X"), ["simulated[0].resourceName"]),
    "two slashes": (simulated("example.com/a/b"), ["simulated[0].resourceName"]),
    "a long label": (simulated(f"{'e' * 64}.com/gpu"), ["simulated[0].resourceName"]),
    "a long domain": (simulated(f"{'a.' * 122}e/gpu"), ["simulated[0].resourceName"]),
    "a long name": (simulated(f"example.com/{'g' * 64}"), ["simulated[0].resourceName"]),
    "a name twice": (simulated("a.b/c", "a.b/c"), ["simulated[1]"]),
    "a name in two plugins": ({**simulated("example.com/serial"), **group()}, ["simulated[0]"]),
    "a GPU's name late": ({**simulated("nvidia.com/gpu"), "nvml": {}}, ["nvml"]),
    "a prefix": (simulated(idPrefix="-x"), ["simulated[0].idPrefix"]),
    "too many parts": (simulated(count=101, partsPerDevice=100), ["simulated[0].partsPerDevice"]),
    "a relative path": (path(path="dev/x"), [f"{_PATH}.path"]),
    "a way up": (path(path="/dev/../etc/shadow"), [f"{_PATH}.path"]),
    "two slashes in a path": (path(path="/dev//a"), [f"{_PATH}.path"]),
    "a directory": (path(path="/dev/"), [f"{_PATH}.path"]),
    "two stars": (path(path="/dev/**/x"), [f"{_PATH}.path"]),
    "nine wildcards": (path(path="/dev/" + "*a" * 9), [f"{_PATH}.path"]),
    "a long path": (path(path="/dev/" + "a" * 5000), [f"{_PATH}.path"]),
    "permissions": (path(permissions="rwx"), [f"{_PATH}.permissions"]),
    "no permission": (path(permissions=""), [f"{_PATH}.permissions"]),
    "a relative path in the container": (path(mountPath="x"), [f"{_PATH}.mountPath"]),
    "a mount": (
        group(mounts=[{"hostPath": "x", "containerPath": "/a/../b"}]),
        [f"generic[0].groups[0].mounts[0].{key}" for key in ("hostPath", "containerPath")],
    ),
    "a variable late": (group(env={"A B": "x"}), ["generic[0].groups[0].env.A B"]),
    "a variable's value": (group(env={"A": 1}), ["generic[0].groups[0].env.A"]),
    "paths and a selection": (group(select={"subsystems": ["tty"]}), ["generic[0].groups[0]"]),
    "neither paths nor a selection": (groups({}), ["generic[0].groups[0]"]),
    "a selection of nothing": (select(udev={}, subsystems=[]), [_SELECT]),
    "USB of nothing": (select(usb={"vendor": ""}), [_USB]),
    "a selection of files": (groups({"select": {"subsystems": ["tty"]}, "allowFiles": True}), ["generic[0].groups[0]"]),
    "a hexadecimal number": (select(usb={"vendor": "0x0403"}), [f"{_USB}.vendor"]),
    "a port with wildcards": (select(usb={"port": "*a" * 9}), [f"{_USB}.port"]),
    "a property late": (select(udev={"ID SERIAL": "x"}), [f"{_SELECT}.udev.ID SERIAL"]),
    "a subsystem": (select(subsystems=["tty/x"]), [f"{_SELECT}.subsystems[0]"]),
    "wildcards that differ late": (
        group(paths=[{"path": "/dev/a*"}, {"path": "/dev/b*c*"}]),
        ["generic[0].groups[0].paths"],
    ),
    "all optional late": (path(optional=True), ["generic[0].groups[0].paths"]),
    "two groups of one path late": (groups(*[{"paths": [{"path": "/dev/a"}]}] * 2), ["generic[0].groups[1]"]),
    "two groups of one selection late": (
        groups(
            {"select": {"usb": {"vendor": "0403", "product": ""}}},
            {"select": {"permissions": "rw", "usb": {"vendor": "0403"}}},
        ),
        ["generic[0].groups[1]"],
    ),
    "a model's name": (nvml(modelResourceNames={"*T4*": "t4"}), ["nvml.modelResourceNames.*T4*"]),
    "auto and another way": (nvml(handOver=["auto", "env"]), ["nvml.handOver"]),
    "no way": (nvml(handOver=["magic"]), ["nvml.handOver[0]"]),
    "an exemption": (nvml(exempt=["a/b", "a/b/c"]), ["nvml.exempt[1]"]),
    "a CDI kind": (nvml(cdiKind="gpu"), ["nvml.cdiKind"]),
    "an Xid that is both": (nvml(criticalXids=[31], harmlessXids=[31]), ["nvml.harmlessXids"]),
    "an interval": (nvml(pollSeconds=0.1), ["nvml.pollSeconds"]),
    "no use": (shared({"memory": None}), ["nvml.sharing[0]"]),
    "two uses": (shared({"whole": {}, "memory": {}}), ["nvml.sharing[0]"]),
    "a unit": (shared({"memory": {"unit": "1GB"}}), ["nvml.sharing[0].memory.unit"]),
    "a unit of nothing": (shared({"memory": {"unit": "00Gi"}}), ["nvml.sharing[0].memory.unit"]),
    "a library": (shared({"memory": {"limits": {"library": "libvgpu.so"}}}), ["nvml.sharing[0].memory.limits.library"]),
    "one use of a GPU late": (shared({"memory": {}}, {"whole": {}}), ["nvml.sharing[1]"]),
    "a model twice late": (
        shared({"models": ["*T4*"], "whole": {}}, {"models": ["*T4*"], "indexes": [0], "memory": {}}),
        ["nvml.sharing[1]"],
    ),
    "one name of two things late": (shared({"models": ["*T4*"], "shares": {"replicas": 2}}), ["nvml.sharing[0]"]),
    "one name of two units late": (
        shared({"indexes": [0], "memory": {}}, {"indexes": [1], "memory": {"unit": "2Gi"}}),
        ["nvml.sharing[1]"],
    ),
    "an instance's name late": (
        shared({"whole": {"resourceName": "nvidia.com/mig-1g.10gb"}}, mig="mixed"),
        ["nvml.sharing[0]"],
    ),
    "a long name of shares late": (
        shared({"shares": {"replicas": 2, "renameByDefault": True}}, resourceName=f"a.b/{'g' * 60}"),
        ["nvml.sharing[0]"],
    ),
    "many": (
        {
            "generic": [
                {"resourceName": "serial", "groups": [{"paths": [{"path": "dev/x", "permissions": "x"}], "count": 0}]}
            ],
            "simulated": [{"resourceName": "a.b/c", "numaNodes": 65}],
            "nvml": {"mig": "some", "eccErrors": "maybe"},
        },
        [
            "generic[0].resourceName",
            f"{_PATH}.path",
            f"{_PATH}.permissions",
            "generic[0].groups[0].count",
            "simulated[0].numaNodes",
            "nvml.mig",
            "nvml.eccErrors",
        ],
    ),
}

# Of the agent's own settings, which a NodeDeviceConfig does not have.
SETTINGS: Final[dict[str, tuple[dict[str, Any], list[str]]]] = {
    "a relative directory": (
        {"kubeletDir": "kubelet", "stateDir": "x", "pluginDir": ""},
        ["kubeletDir", "stateDir", "pluginDir"],
    ),
    "a relative socket": ({"nriSocket": "nri.sock", "podResourcesSocket": "x"}, ["nriSocket", "podResourcesSocket"]),
    "a long directory": ({"stateDir": "/" + "s" * 80, "pluginDir": "/" + "p" * 94}, ["stateDir", "pluginDir"]),
    "a word": ({"delivery": "docker", "logFormat": "JSON"}, ["delivery", "logFormat"]),
    "a number without quotes": ({"nriIndex": 10, "numaNodes": 0}, ["nriIndex", "numaNodes"]),
    "NUMA nodes": ({"numaNodes": "0-1,3-1"}, ["numaNodes"]),
    "too many NUMA nodes": ({"numaNodes": "1024"}, ["numaNodes"]),
    "no resource": (
        {"allocateRetry": {"gpu": "never", "a.b/c": "once", "*": "never"}},
        ["allocateRetry.gpu", "allocateRetry.a.b/c"],
    ),
    "two deliveries": ({"delivery": "nri", "runtime": "kubelet"}, ["runtime"]),
    "devices for nothing": ({"delivery": "nri", "advertiseWithoutInjection": True}, ["advertiseWithoutInjection"]),
    "no time": (
        {"runtimeGraceSeconds": -1, "flappingWindowSeconds": 0},
        ["runtimeGraceSeconds", "flappingWindowSeconds"],
    ),
    "the host's root": ({"plugins": {"hostRoot": "host"}}, ["plugins.hostRoot"]),
    "two libraries": ({"plugins": {"nvml": {"libraryDir": "/a:/b"}}}, ["plugins.nvml.libraryDir"]),
    "a library and a line": ({"plugins": {"nvml": {"libraryDir": "/lib\n"}}}, ["plugins.nvml.libraryDir"]),
    "a key": ({"logLevl": "debug"}, ["logLevl"]),
    "a key of another place": ({"generic": []}, ["generic"]),
}

RIGHT: Final[dict[str, Plugins]] = {
    "nothing": {},
    "resource names": simulated("a/b", f"{'a' * 63}.{'b' * 63}/{'C' * 63}", f"{'a.' * 121}bc/x_.-y"),
    "a long prefix": simulated(idPrefix="x" * 54),
    "no prefix": simulated(idPrefix=""),
    "dots in a path": path(path="/dev/.a/..b/.../c.."),
    "wildcards": path(path="/dev/*/?[a-c]*x*", permissions="mwr", mountPath="/dev/b/"),
    "mounts and variables": group(mounts=[{"hostPath": "/dev", "containerPath": ""}], env={"_A.b-c": "x"}, count=1000),
    "USB": select(usb={"vendor": "046D", "product": "", "serial": "A*", "port": "1-2.*"}),
    "udev": select(udev={"ID_SERIAL": "a b*", "ID_V4L_CAPABILITIES": "*:capture:*"}),
    "no USB": select(usb=None, subsystems=["video4linux", "usb"], mountPath="/dev/b/"),
    "one optional path": group(paths=[{"path": "/dev/a*"}, {"path": "/dev/b*", "optional": True}]),
    "GPUs": nvml(),
    "no GPUs": {"nvml": None},
    "names by model": nvml(modelResourceNames={"*T4*": "x.y/z"}, cdiKind="a.b-c/d_e", handOver=["env", "cdi"]),
    "shared GPUs": shared(
        {"models": ["*T4*"], "shares": {"replicas": 1000, "renameByDefault": True, "mps": {}}},
        {"indexes": [0, 1], "whole": {"resourceName": ""}},
        {"indexes": [2], "memory": {"unit": "512Mi", "reserve": "0Mi", "choice": "spread", "limits": None}},
        mig="mixed",
    ),
    "units of one size": shared(
        {"indexes": [0], "memory": {}}, {"indexes": [1], "memory": {"reserve": "1Gi", "limits": {}}}
    ),
}
