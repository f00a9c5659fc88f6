"""Decodes a CDI specification by the rules of the library that container runtimes use. Pure.

One mistake anywhere makes a runtime drop the whole file, so this reader does the same and names the mistake. Text becomes
values by the rules of that library's YAML decoder: JSON is read as YAML, only the first document counts, numbers are also texts.
The library accepts any annotations.
Source: tags.cncf.io/container-device-interface pkg/cdi, pkg/parser and specs-go @ v1.1.1, go.yaml.in/yaml/v3 @ v3.0.5; and the
library's own results for tests/oracle/cdi.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct, field
from nodedevice_common.decoding import Undecodable
from nodedevice_common.text import shown

from nodedevice_agent.lib.yaml_as_go import Decoder, Invalid, list_of

_NAME: Final = "[A-Za-z](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?"
KIND: Final = re.compile(f"{_NAME}/{_NAME}")
DEVICE_NAME: Final = re.compile("[A-Za-z0-9](?:[A-Za-z0-9_.:-]*[A-Za-z0-9])?")
# oldest first; a file needs 0.3.0 at least
_VERSIONS: Final = ("0.1.0", "0.2.0", "0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0")
_OLDEST: Final = "0.3.0"
_TYPES: Final = ("", "b", "c", "u", "p")
# the last two run in the container, or when it is over: a file that is missing there stops no start
_HOOKS: Final = ("prestart", "createRuntime", "createContainer", "poststart", "startContainer", "poststop")
_HOOKS_OF_THE_HOST: Final = _HOOKS[:4]
_MAX_CLOS_ID: Final = 4096


class CdiNode(Struct, frozen=True):
    """A device file. host_path: "" if it equals the path. type, major, minor: "" or 0 if the specification sets none."""

    path: str = ""
    host_path: str = ""
    type: str = ""
    major: int = 0
    minor: int = 0

    @property
    def number(self) -> str:
        """The number with which a runtime creates the file, such as c195:0; "" if it takes the number of the host's file."""
        if not self.type or not self.major or self.type == "p":
            return ""
        return f"{'b' if self.type == 'b' else 'c'}{self.major}:{self.minor}"

    @property
    def on_host(self) -> str:
        return self.host_path or self.path

    @property
    def needs_host_file(self) -> bool:
        """Whether a runtime refuses the container if the host has no such device file."""
        return not self.number and self.type != "p"


class CdiEdits(Struct, frozen=True):
    """mounts: host paths of bind mounts. hooks: paths of programs that run on the host before a container starts."""

    env: tuple[str, ...] = ()
    device_nodes: tuple[CdiNode, ...] = ()
    mounts: tuple[str, ...] = ()
    hooks: tuple[str, ...] = ()


class CdiDevice(Struct, frozen=True):
    name: str
    container_edits: CdiEdits = field(default_factory=CdiEdits)


def specification(document: Any, decoder: Decoder) -> tuple[str, tuple[CdiDevice, ...], CdiEdits]:
    """The kind, the devices, and the edits that apply to each device. document: see yaml_decoding.first_document().

    Raises Undecodable, and TooMuch for more than the decoder takes.
    """
    try:
        raw = None if document is None else decoder.record(document, _SPECIFICATION, "")
        if raw is None:
            raise Invalid("it is empty")
        return _checked(raw)
    except Invalid as error:
        raise Undecodable(error) from error


def _uint32(decoder: Decoder, node: Any, where: str) -> int | None:
    return decoder.number(node, where, 0, (1 << 32) - 1)


Fields = Mapping[str, Callable[..., Any]]


def _record_of(fields: Fields) -> Callable[..., Any]:
    return lambda decoder, node, where: decoder.record(node, fields, where)


def _records_of(fields: Fields) -> Callable[..., Any]:
    return list_of(_record_of(fields), skips_null=False)


_text, _texts, _number, _flag = Decoder.text, list_of(Decoder.text), Decoder.number, Decoder.flag
_NET_DEVICE: Final[Fields] = {"hostInterfaceName": _text, "name": _text}
_INTEL_RDT: Final[Fields] = {
    "closID": _text,
    "l3CacheSchema": _text,
    "memBwSchema": _text,
    "schemata": _texts,
    "enableMonitoring": _flag,
}
_HOOK: Final[Fields] = {"hookName": _text, "path": _text, "args": _texts, "env": _texts, "timeout": _number}
_MOUNT: Final[Fields] = {"hostPath": _text, "containerPath": _text, "options": _texts, "type": _text}
_NODE: Final[Fields] = {
    **dict.fromkeys(("path", "hostPath", "type", "permissions"), _text),
    **{"major": _number, "minor": _number},
    **dict.fromkeys(("fileMode", "uid", "gid"), _uint32),
}
_EDITS: Final[Fields] = {
    "env": _texts,
    "deviceNodes": _records_of(_NODE),
    "netDevices": _records_of(_NET_DEVICE),
    "hooks": _records_of(_HOOK),
    "mounts": _records_of(_MOUNT),
    "intelRdt": _record_of(_INTEL_RDT),
    "additionalGids": list_of(_uint32),
}
_DEVICE: Final[Fields] = {"name": _text, "annotations": Decoder.annotations, "containerEdits": _record_of(_EDITS)}
_SPECIFICATION: Final[Fields] = {
    "cdiVersion": _text,
    "kind": _text,
    "annotations": Decoder.annotations,
    "devices": list_of(_record_of(_DEVICE)),
    "containerEdits": _record_of(_EDITS),
}

Raw = Mapping[str, Any]


def _checked(raw: Raw) -> tuple[str, tuple[CdiDevice, ...], CdiEdits]:
    """Raises Invalid."""
    devices: Sequence[Raw] = raw.get("devices", ())
    _check_version(raw, devices)
    kind = raw.get("kind", "")
    if not KIND.fullmatch(kind):
        raise Invalid(f"kind {shown(kind, 100)!r} is not vendor/class, such as vendor.com/class")
    everybodys = _edits(raw.get("containerEdits", {}), "containerEdits")
    found: dict[str, CdiDevice] = {}
    for at, device in enumerate(devices):
        name, edits = device.get("name", ""), device.get("containerEdits", {})
        if not DEVICE_NAME.fullmatch(name):
            raise Invalid(f"devices[{at}].name {shown(name, 100)!r} is not a CDI device name")
        if not any(edits.get(key) for key in _EDITS if key != "intelRdt") and "intelRdt" not in edits:
            raise Invalid(f"device {shown(name, 100)} has no containerEdits")
        if name in found:
            raise Invalid(f"device {shown(name, 100)} is there twice")
        found[name] = CdiDevice(name, _edits(edits, f"devices[{at}].containerEdits"))
    if not found:
        raise Invalid("it has no devices")
    return kind, tuple(found.values()), everybodys


def _check_version(raw: Raw, devices: Sequence[Raw]) -> None:
    version = raw.get("cdiVersion", "")
    number = version.removeprefix("v")
    if number not in _VERSIONS:
        raise Invalid(f"cdiVersion {shown(version, 40)!r} is not known")
    needed = next(_needed_versions(raw, devices))
    if _VERSIONS.index(number) < _VERSIONS.index(needed):
        raise Invalid(f"cdiVersion {number} is too low: the file needs {needed}")


def _needed_versions(raw: Raw, devices: Sequence[Raw]) -> Iterator[str]:
    """Highest first."""
    every: list[Raw] = [raw.get("containerEdits", {}), *(each.get("containerEdits", {}) for each in devices)]
    rdts = [edits["intelRdt"] for edits in every if "intelRdt" in edits]
    if any("schemata" in rdt or rdt.get("enableMonitoring") for rdt in rdts) or any(e.get("netDevices") for e in every):
        yield "1.1.0"
    if rdts or any(edits.get("additionalGids") for edits in every):
        yield "0.7.0"
    if any(each.get("annotations") for each in (raw, *devices)) or "." in raw.get("kind", "").partition("/")[2]:
        yield "0.6.0"
    nodes = [node for edits in every for node in edits.get("deviceNodes", ())]
    if any("0" <= each.get("name", "")[:1] <= "9" for each in devices) or any(node.get("hostPath") for node in nodes):
        yield "0.5.0"
    if any(mount.get("type") for edits in every for mount in edits.get("mounts", ())):
        yield "0.4.0"
    yield _OLDEST


def _edits(raw: Raw, where: str) -> CdiEdits:
    """Raises Invalid."""
    env: Sequence[str] = raw.get("env", ())
    _check_env(env, where)
    nodes, hooks, mounts = raw.get("deviceNodes", ()), raw.get("hooks", ()), raw.get("mounts", ())
    for at, node in enumerate(nodes):
        _check_node(node, f"{where}.deviceNodes[{at}]")
    for at, hook in enumerate(hooks):
        _check_hook(hook, f"{where}.hooks[{at}]")
    for at, mount in enumerate(mounts):
        if not mount.get("hostPath") or not mount.get("containerPath"):
            raise Invalid(f"{where}.mounts[{at}] has no hostPath or no containerPath")
    _check_clos_id(raw.get("intelRdt", {}).get("closID", ""), where)
    _check_net_devices(raw.get("netDevices", ()), where)
    return CdiEdits(
        tuple(env),
        tuple(
            CdiNode(n["path"], n.get("hostPath", ""), n.get("type", ""), n.get("major", 0), n.get("minor", 0))
            for n in nodes
        ),
        tuple(mount["hostPath"] for mount in mounts if _is_bind(mount)),
        tuple(hook["path"] for hook in hooks if hook["hookName"] in _HOOKS_OF_THE_HOST),
    )


def _is_bind(mount: Raw) -> bool:
    return mount.get("type", "") in ("", "bind", "rbind") or not {"bind", "rbind"}.isdisjoint(mount.get("options", ()))


def _check_env(env: Iterable[str], where: str) -> None:
    for variable in env:
        if variable.find("=") <= 0:
            raise Invalid(f"{where}.env: {shown(variable, 100)!r} is not NAME=value")


def _check_node(node: Raw, where: str) -> None:
    if not node.get("path"):
        raise Invalid(f"{where} has no path")
    if node.get("type", "") not in _TYPES:
        raise Invalid(f"{where}.type {shown(node['type'], 40)!r} is not b, c, u or p")
    permissions = node.get("permissions", "")
    if permissions != "none" and not set(permissions) <= set("rwm"):
        raise Invalid(f"{where}.permissions {shown(permissions, 40)!r} are not letters of rwm")


def _check_hook(hook: Raw, where: str) -> None:
    if hook.get("hookName", "") not in _HOOKS:
        raise Invalid(f"{where}.hookName {shown(hook.get('hookName', ''), 40)!r} is not one of {', '.join(_HOOKS)}")
    if not hook.get("path"):
        raise Invalid(f"{where} has no path")
    _check_env(hook.get("env", ()), where)


def _check_clos_id(clos_id: str, where: str) -> None:
    is_long = len(clos_id.encode("utf-8", "surrogateescape")) >= _MAX_CLOS_ID
    if clos_id != "/" and (is_long or clos_id in (".", "..") or not {"/", "\n"}.isdisjoint(clos_id)):
        raise Invalid(f"{where}.intelRdt.closID is not a file name")


def _check_net_devices(devices: Sequence[Raw], where: str) -> None:
    for key in _NET_DEVICE:
        names = [device.get(key, "") for device in devices]
        if "" in names or len(set(names)) < len(names):
            raise Invalid(f"{where}.netDevices has {key} empty or twice")
