"""Directories with CDI specifications, each of which a container runtime's library and our reader have to decide alike.

A case is what lies in `etc` and `run`, by path: a text, or a dict as main.go takes it.
"""

import json
from base64 import b64encode
from collections.abc import Mapping
from typing import Any, Final

File = str | Mapping[str, Any]
Case = Mapping[str, File]

EDITS: Final = {"env": ["A=b"]}
ONE: Final = {"name": "one", "containerEdits": EDITS}


def spec(*devices: Any, **fields: Any) -> str:
    return json.dumps({"cdiVersion": "1.1.0", "kind": "vendor.com/class", "devices": [*devices] or [ONE], **fields})


def device(name: Any = "one", **edits: Any) -> dict[str, Any]:
    return {"name": name, "containerEdits": edits or EDITS}


def alone(**edits: Any) -> Case:
    """One device with these edits, beside a good one of the same file."""
    return {"etc/a.json": spec(device("good"), device("one", **edits))}


def node(**fields: Any) -> Case:
    return alone(deviceNodes=[{"path": "/dev/x", **fields}])


def versioned(version: Any, *devices: Any, **fields: Any) -> Case:
    return {"etc/a.json": spec(*devices, cdiVersion=version, **fields)}


def yaml(text: str) -> Case:
    return {"etc/a.yaml": text}


def octets(data: bytes, name: str = "a.json") -> Case:
    return {f"etc/{name}": {"octets": b64encode(data).decode()}}


def edited(edits: str) -> Case:
    """In YAML."""
    return yaml(f"{_BLOCK}- {{name: one, containerEdits: {{{edits}}}}}\n")


_BLOCK: Final = "cdiVersion: 0.6.0\nkind: vendor.com/class\ndevices:\n"
_KINDS: Final = (
    *("v/c", "vendor.com/class", "a_b/c_d", "V.e-n/c-l.a_s", "v1/c1"),
    *("vendor.com", "/class", "vendor.com/", "1v/c", "v/1c", "v_/c", "v/c_", "v./c", "v/c."),
    *("v c/c", "v/c/d", "v/c=d", "é/c", ""),
)
_NAMES: Final = (
    *("a", "0", "GPU-0a1b", "a:b", "a_b.c-d:e", "MIG-1/2", "-a", "a-", ":a", "a:"),
    *("a b", "a=b", "é", "a\n", "", "A" * 300, 1, 1.5, True, None),
)
_HOOKS: Final = (
    *("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"),
    *("preStart", ""),
)
_TYPED_MOUNT: Final = {"hostPath": "/a", "containerPath": "/b", "type": "bind"}
_MOVED_NODE: Final = {"path": "/a", "hostPath": "/b"}
_VARIABLES: Final[tuple[Any, ...]] = ("A=", "A=b=c", "=b", "A", "", 1, None, [])

CASES: Final[Mapping[str, Case]] = {
    # -- directories and files
    "nothing": {},
    "one file": {"etc/a.json": spec()},
    "a name in both directories": {"etc/a.json": spec(), "run/a.json": spec()},
    "a name twice in etc": {"etc/a.json": spec(), "etc/b.json": spec(ONE, device("two"))},
    "a name twice in run": {"run/a.json": spec(), "run/b.json": spec(ONE, device("two"))},
    "a name twice in etc, and in run": {
        "etc/a.json": spec(),
        "etc/b.json": spec(),
        "run/c.json": spec(ONE, device("two")),
    },
    "a name twice in run, and in etc": {
        "run/a.json": spec(),
        "run/b.json": spec(),
        "etc/c.json": spec(ONE, device("two")),
    },
    "a name three times": {f"etc/{name}.json": spec(ONE, device(name)) for name in "abc"},
    "a name of two kinds": {"etc/a.json": spec(), "etc/b.json": spec(kind="vendor.com/other")},
    "two files of one kind": {"etc/a.json": spec(), "etc/b.json": spec(device("two"))},
    "a bad file with the same name beside it": {"etc/a.json": spec(), "etc/b.json": spec(unknown=1)},
    "a bad file of run does not hide etc": {"etc/a.json": spec(), "run/a.json": spec(cdiVersion="9.0.0")},
    "endings": {
        f"etc/{name}": spec(device(f"d{at}"))
        for at, name in enumerate(["a.json", "b.yaml", "c.yml", "d.JSON", "e.json~"])
    },
    "names of files": {
        f"etc/{name}": spec(device(f"d{at}"))
        for at, name in enumerate([".json", ".a.json", "json", "a.b.yaml", " .json"])
    },
    "a link": {"etc/a.json": {"link": "a.spec"}, "etc/a.spec": spec()},
    "a link to a file that is read anyway": {"etc/a.json": spec(), "etc/b.json": {"link": "a.json"}},
    "a link to nothing": {"etc/a.json": {"link": "gone"}, "etc/b.json": spec()},
    "a link to itself": {"etc/a.json": {"link": "a.json"}, "etc/b.json": spec()},
    "a link to a directory": {"etc/a.json": {"link": "."}, "etc/b.json": spec()},
    "a directory": {"etc/a.json": {"folder": True}, "etc/b.json": spec()},
    "a directory with a specification": {"etc/sub/a.json": spec(), "etc/b.json": spec(device("two"))},
    "etc is a file": {"etc": spec(), "run/a.json": spec()},
    "run is a file": {"run": spec(), "etc/a.json": spec()},
    # -- form
    "empty": {"etc/a.json": ""},
    "null": {"etc/a.json": "null"},
    "a list": {"etc/a.json": "[]"},
    "not closed": {"etc/a.json": spec()[:-1]},
    "compact": {"etc/a.json": spec().replace(": ", ":").replace(", ", ",")},
    "with tabs": {"etc/a.json": json.dumps(json.loads(spec()), indent="\t")},
    "with carriage returns": {"etc/a.json": spec().replace(", ", ",\r\n")},
    "with a comment": {"etc/a.json": f"# written by hand\n{spec()}"},
    "a comma too many": {"etc/a.json": spec().replace("}]}", "}],}")},
    "a slash behind a backslash": {"etc/a.json": spec().replace("/", r"\/")},
    "half characters": {"etc/a.json": spec(device(env=["A=\U0001f600"]))},
    "characters beyond the first plane": {
        "etc/a.json": json.dumps(json.loads(spec(device(env=["A=\U0001f600"]))), ensure_ascii=False)
    },
    "YAML in .json": {"etc/a.json": f"{_BLOCK}- name: one\n  containerEdits: {{env: [A=b]}}\n"},
    "JSON in .yaml": {"etc/a.yaml": spec()},
    "something after it": {"etc/a.json": f"{spec()} and more"},
    "a second document": yaml(f"{spec()}\n---\nkind: [\n"),
    "an empty document before it": yaml(f"---\n---\n{spec()}"),
    "%YAML 1.1": yaml(f"%YAML 1.1\n---\n{spec()}"),
    "%YAML 1.2": yaml(f"%YAML 1.2\n---\n{spec()}"),
    "a mark of the byte order": {"etc/a.json": f"\ufeff{spec()}"},
    "UTF-16": octets(spec().encode("utf-16")),
    "Latin-1": octets(spec(device(env=["A=b"])).replace("A=b", "A=\xe9").encode("latin-1")),
    "a control character": {"etc/a.json": spec().replace("A=b", "A=\x01")},
    "a zero byte": {"etc/a.json": spec() + "\0"},
    "a question mark in brackets": edited("env: [A=b?c]"),
    "a question mark in quotes": edited("env: ['A=b?c']"),
    "a question mark without brackets": yaml(f"{_BLOCK}- name: one\n  containerEdits:\n    env:\n    - A=b?c\n"),
    "a tab before a key": yaml(f"{_BLOCK}- name: one\n\tcontainerEdits: {{env: [A=b]}}\n"),
    "an alias": yaml(
        f"{_BLOCK}- {{name: one, containerEdits: &e {{env: [A=b]}}}}\n- {{name: two, containerEdits: *e}}\n"
    ),
    "an alias of nothing": yaml(f"{_BLOCK}- {{name: one, containerEdits: *e}}\n"),
    "an alias within itself": yaml(f"{_BLOCK}- {{name: one, containerEdits: &e {{env: [A=b], mounts: [*e]}}}}\n"),
    "a merge": yaml(f"{_BLOCK}- &d {{name: one, containerEdits: {{env: [A=b]}}}}\n- {{<<: *d, name: two}}\n"),
    "a merge of two": yaml(
        f"{_BLOCK}- &d {{name: one, containerEdits: {{env: [A=b]}}}}\n- {{<<: [{{name: two}}, *d]}}\n"
    ),
    "a merge of a number": yaml(f"{_BLOCK}- {{name: one, containerEdits: {{env: [A=b]}}, <<: 1}}\n"),
    "a merge in quotes": yaml(f"{_BLOCK}- {{name: one, containerEdits: {{env: [A=b]}}, '<<': {{}}}}\n"),
    "a name that is a date": yaml(f"{_BLOCK}- {{name: 2026-01-01, containerEdits: {{env: [A=b]}}}}\n"),
    "a tag of its own": yaml(f"{_BLOCK}- {{name: !x one, containerEdits: {{env: [A=b]}}}}\n"),
    "a tag that does not fit": yaml(f"{_BLOCK}- {{name: !!int one, containerEdits: {{env: [A=b]}}}}\n"),
    "base64": yaml(f"{_BLOCK}- {{name: !!binary b25l, containerEdits: {{env: [A=b]}}}}\n"),
    "a key that is null": yaml(f"{_BLOCK}- {{name: one, ~: x, containerEdits: {{env: [A=b]}}}}\n"),
    # -- fields
    "an unknown field": {"etc/a.json": spec(unknown=None)},
    "an unknown field of a device": {"etc/a.json": spec(device("good"), {**ONE, "labels": {}})},
    "an unknown field of edits": alone(env=["A=b"], gids=[]),
    "an unknown field of a device node": node(mode=1),
    "a field in other letters": {"etc/a.json": spec(Kind="v/c")},
    "a field twice": {"etc/a.json": spec()[:-1] + ', "kind": "vendor.com/class"}'},
    "no version": {"etc/a.json": json.dumps({"kind": "v/c", "devices": [ONE]})},
    "no kind": {"etc/a.json": json.dumps({"cdiVersion": "1.1.0", "devices": [ONE]})},
    "no devices": {"etc/a.json": json.dumps({"cdiVersion": "1.1.0", "kind": "v/c"})},
    "devices is empty": {"etc/a.json": spec(devices=[])},
    "devices is null": {"etc/a.json": spec(devices=None)},
    "devices is an object": {"etc/a.json": spec(devices={})},
    "a device that is null": {"etc/a.json": spec(ONE, None)},
    "a device twice": {"etc/a.json": spec(ONE, device("two"), ONE)},
    "a device without a name": {"etc/a.json": spec(device("good"), {"containerEdits": EDITS})},
    "a device without edits": {"etc/a.json": spec(device("good"), {"name": "one"})},
    "a device with empty edits": {"etc/a.json": spec(device("good"), {"name": "one", "containerEdits": {}})},
    "edits of all, and none of its own": {
        "etc/a.json": spec({"name": "one", "containerEdits": {}}, containerEdits=EDITS)
    },
    "edits of all are empty": {"etc/a.json": spec(containerEdits={})},
    "edits of all are null": {"etc/a.json": spec(containerEdits=None)},
    "edits of all are wrong": {"etc/a.json": spec(containerEdits={"env": ["A"]})},
    "lists that are empty": alone(env=[], mounts=[], hooks=[], deviceNodes=[], netDevices=[], additionalGids=[]),
    "annotations": {
        "etc/a.json": spec({**ONE, "annotations": {"a": "b"}}, annotations={"a.b/c": "", "d": 1, "e": None})
    },
    "an annotation that Kubernetes refuses": {
        "etc/a.json": spec({**ONE, "annotations": {"not a key!": "b"}}, annotations={"/": "x"})
    },
    "too long annotations": {"etc/a.json": spec(annotations={"a": "b" * 300_000})},
    "an annotation that is a list": {"etc/a.json": spec(annotations={"a": []})},
    "annotations are a list": {"etc/a.json": spec(annotations=[])},
    # -- versions
    **{
        f"version {each!r}": versioned(each)
        for each in ("0.1.0", "0.2.0", "0.3.0", "v0.3.0", "1.0.0", "v1.1.0", "vv1.1.0", "1.2.0", "1.1", 1.0, "", None)
    },
    **{f"{each} with a mount's type": versioned(each, device(mounts=[_TYPED_MOUNT])) for each in ("0.3.0", "0.4.0")},
    **{f"{each} with a host path": versioned(each, device(deviceNodes=[_MOVED_NODE])) for each in ("0.4.0", "0.5.0")},
    "0.4.0 with a host path for all": versioned("0.4.0", containerEdits={"deviceNodes": [_MOVED_NODE]}),
    "0.4.0 with a name that begins with a digit": versioned("0.4.0", device("0")),
    "0.5.0 with a name that begins with a digit": versioned("0.5.0", device("0")),
    "0.5.0 with annotations": versioned("0.5.0", annotations={"a": "b"}),
    "0.5.0 with annotations of a device": versioned("0.5.0", {**ONE, "annotations": {"a": None}}),
    "0.6.0 with annotations": versioned("0.6.0", annotations={"a": "b"}),
    "0.5.0 with empty annotations": versioned("0.5.0", annotations={}),
    "0.5.0 with a dot in the class": versioned("0.5.0", kind="vendor.com/a.b"),
    "0.6.0 with a dot in the class": versioned("0.6.0", kind="vendor.com/a.b"),
    "0.6.0 with Intel RDT": versioned("0.6.0", device(intelRdt={})),
    "0.7.0 with Intel RDT": versioned("0.7.0", device(intelRdt={})),
    "0.6.0 with group IDs": versioned("0.6.0", device(additionalGids=[1])),
    "0.7.0 with group IDs": versioned("0.7.0", device(additionalGids=[1])),
    "1.0.0 with a schema": versioned("1.0.0", device(intelRdt={"schemata": []})),
    "1.0.0 with a schema that is null": versioned("1.0.0", device(intelRdt={"schemata": None})),
    "1.0.0 with monitoring": versioned("1.0.0", device(intelRdt={"enableMonitoring": True})),
    "1.0.0 without monitoring": versioned("1.0.0", device(intelRdt={"enableMonitoring": False})),
    "1.0.0 with a network device": versioned("1.0.0", device(netDevices=[{"hostInterfaceName": "a", "name": "b"}])),
    "1.1.0 with a network device": versioned("1.1.0", device(netDevices=[{"hostInterfaceName": "a", "name": "b"}])),
    "0.5.0, too low for one of two": versioned("0.5.0", device("good"), device("two", additionalGids=[1])),
    # -- names
    **{f"kind {each!r}": {"etc/a.json": spec(kind=each)} for each in _KINDS},
    **{
        f"device {each if each != 'A' * 300 else 'long'!r}": {"etc/a.json": spec(device("good"), device(each))}
        for each in _NAMES
    },
    # -- edits
    **{f"env {each!r}": alone(env=["A=b", each]) for each in _VARIABLES},
    "env is a text": alone(env="A=b"),
    **{f"type {each!r}": node(type=each) for each in ("", "b", "c", "u", "p", "x", "cc", None)},
    **{
        f"permissions {each!r}": node(permissions=each) for each in ("", "r", "rwm", "mmm", "none", "rx", "rxw", "None")
    },
    **{f"major {each!r}": node(major=each) for each in (0, 195, -1, 1.5, "195", True, None, 1 << 63, (1 << 63) - 1)},
    **{f"fileMode {each!r}": node(fileMode=each) for each in (0, 438, -1, 1 << 32, None)},
    **{f"uid {each!r}": node(uid=each, gid=each) for each in (0, 1000, -1, 1 << 32)},
    "octal numbers": edited("deviceNodes: [{path: /dev/x, major: 0o303, minor: 010, fileMode: 0666}]"),
    "odd numbers": edited("deviceNodes: [{path: /dev/x, major: 1_000, minor: 08, uid: +1}]"),
    "no number": edited("deviceNodes: [{path: /dev/x, major: _1}]"),
    "a node without a path": alone(deviceNodes=[{"hostPath": "/dev/x"}]),
    "a node that is a text": alone(deviceNodes=["/dev/x"]),
    **{f"hook {each!r}": alone(hooks=[{"hookName": each, "path": "/x"}]) for each in _HOOKS},
    "a hook without a path": alone(hooks=[{"hookName": "prestart"}]),
    "a hook with a bad variable": alone(hooks=[{"hookName": "prestart", "path": "/x", "env": ["A"]}]),
    "a hook with odd arguments": alone(
        hooks=[{"hookName": "prestart", "path": "/x", "args": ["x", 1, None], "timeout": 1.5}]
    ),
    "a hook with a time that is a text": alone(hooks=[{"hookName": "prestart", "path": "/x", "timeout": "1"}]),
    "a mount": alone(mounts=[{"hostPath": "/a", "containerPath": "/b", "options": ["ro", "bind"]}]),
    "a mount of nothing": alone(mounts=[{"containerPath": "/b"}]),
    "a mount at nothing": alone(mounts=[{"hostPath": "/a"}]),
    "a mount's options are a text": alone(mounts=[{"hostPath": "/a", "containerPath": "/b", "options": "ro"}]),
    **{
        f"closID {each[:8]!r} {len(each)}": alone(intelRdt={"closID": each})
        for each in ("a", "/", ".", "..", "a/b", "a\nb", "x" * 4095, "x" * 4096)
    },
    **{
        f"enableMonitoring {each!r}": alone(intelRdt={"enableMonitoring": each})
        for each in (True, "yes", "off", "maybe", 1)
    },
    "a network device without a name": alone(netDevices=[{"hostInterfaceName": "a"}]),
    "a network device without an interface": alone(netDevices=[{"name": "a"}]),
    "two network devices of one interface": alone(
        netDevices=[{"hostInterfaceName": "a", "name": each} for each in "bc"]
    ),
    "two network devices of one name": alone(netDevices=[{"hostInterfaceName": each, "name": "a"} for each in "bc"]),
    **{f"group ID {each!r}": alone(env=["A=b"], additionalGids=[each]) for each in (0, 5, -1, 1 << 32, None)},
}
