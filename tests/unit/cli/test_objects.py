"""NodeDevices and PodDevices are read as agents and operator write them, and as another release does."""

import dataclasses
import types
import typing
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import pytest
from kubectl_nodedevice import cluster
from kubectl_nodedevice.cluster import Container, Lease, Node, NodeDevice, Object, Pod, PodDevice
from kubectl_nodedevice.records import record_of
from kubectl_nodedevice.why.kinds import DeviceClass, Event, ResourceClaim, Slice, Workload
from nodedevice_api import nodedevice, poddevice

from charts import generate_cli_records


def _filled(kind: Any, path: str) -> Any:
    """A value of that type of which every part is its own: what is read from the wrong place differs."""
    if isinstance(kind, types.UnionType):
        kind = next(each for each in typing.get_args(kind) if each is not type(None))
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (list, tuple):
        return [_filled(arguments[0], f"{path}[0]")]
    if origin is dict:
        return {f"{path}.key": f"{path}.value"}
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints = typing.get_type_hints(kind)
        names = {each.name: each.encode_name for each in msgspec.structs.fields(kind)}
        skipped = generate_cli_records.SKIPPED.get(kind, ())
        return {names[name]: _filled(hint, f"{path}.{name}") for name, hint in hints.items() if name not in skipped}
    return {str: path, int: len(path) * 1000 + sum(map(ord, path)), bool: True}[kind]


def _values(written: Any) -> Iterator[Any]:
    """Those of all fields, in their order."""
    if dataclasses.is_dataclass(written):
        written = {each.name: getattr(written, each.name) for each in dataclasses.fields(written)}
    if isinstance(written, dict | list | tuple):
        for each in written.values() if isinstance(written, dict) else written:
            yield from _values(each)
    else:
        yield written


@pytest.mark.parametrize(
    ("form", "spec", "status"),
    [
        (NodeDevice, nodedevice.NodeDeviceSpec, nodedevice.NodeDeviceStatus),
        (PodDevice, poddevice.PodDeviceSpec, poddevice.PodDeviceStatus),
    ],
)
def test_each_field_is_read_from_its_place(form: Any, spec: Any, status: Any) -> None:
    written = {"spec": _filled(spec, "spec"), "status": _filled(status, "status")}
    read = record_of(form, {"metadata": {"name": "n", "uid": "u"}, **written})
    assert list(_values(read)) == [*_values(cluster.Meta("n", uid="u")), *_values(written)]


READ: Final = (NodeDevice, PodDevice, Node, Pod, Lease, Object, Event, DeviceClass, ResourceClaim, Slice, Workload)


@pytest.mark.parametrize("form", READ)
@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"metadata": []},
        {"metadata": 1, "spec": "x", "status": [1]},
        {"spec": {"containers": [1, None, "x"], "devices": {"requests": [None, 3, {}]}}},
    ],
)
def test_whatever_an_object_is_like(form: type, odd: Any) -> None:
    assert isinstance(record_of(form, odd), form)


def test_what_another_release_writes_is_read_as_far_as_it_is_known() -> None:
    """A field that is no more, one that is new, a state that nothing here has heard of, and a value of another type."""
    devices = [{"id": "d", "health": "Limping", "temperature": 90, "message": None}, {"id": 7, "numaNodes": ["x", 1]}]
    status = {"total": "4", "parts": {"smPercent": "4"}, "endpoint": {"state": "Dozing"}, "devices": devices}
    read = record_of(NodeDevice, {"spec": {"nodeName": "n"}, "status": status, "other": {}})
    assert (read.node, read.total, read.parts, read.endpoint.state) == ("n", None, cluster.PartRules(), "Dozing")
    assert [(each.id, each.health, each.numa_nodes) for each in read.devices] == [("d", "Limping", ()), ("", "", (1,))]


def test_versions_are_not_interned() -> None:
    one, other = (record_of(cluster.Meta, {"resourceVersion": "".join(("71", "2"))}) for _ in range(2))
    assert (one, one.resource_version is other.resource_version) == (other, False)


def test_containers() -> None:
    claims = [{"name": "a"}, {"name": "b", "request": "r"}]
    resources = {"limits": {"x": "2", "y": "3"}, "requests": {"x": "1"}, "claims": claims}
    side, second = {"name": "side", "restartPolicy": "Always"}, {"name": "second", "restartPolicy": "OnFailure"}
    spec = {
        "containers": [{"name": "main", "image": "i", "resources": resources}, {"name": "other"}],
        "initContainers": [{"name": "first"}, side, second],
    }
    before = {"lastState": {"terminated": {"message": "earlier"}}}
    waiting = {"name": "main", "state": {"waiting": {"reason": "r", "message": "m"}}, **before}
    ended = {"name": "first", "state": {"terminated": {"reason": "Error", "message": "last"}}, **before}
    running = {"name": "other", "state": {"running": {}}}
    status = {"containerStatuses": [waiting, running], "initContainerStatuses": [ended]}
    assert record_of(Pod, {"spec": spec, "status": status}).containers == (
        Container("first", is_init=True, state="terminated", reason="Error", message="last", last_words="last"),
        Container("side", is_init=True, is_sidecar=True),
        Container("second", is_init=True),
        Container("main", "i", {"x": "1", "y": "3"}, ("a", "b"), False, False, "waiting", "r", "m", "earlier"),
        Container("other", state="running"),
    )
