"""The one place that reads objects as plain JSON, held to the records that agent and operator write: no field is forgotten."""

import dataclasses
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
import pytest
from kubectl_nodedevice import cluster, objects
from nodedevice_api import nodedevice, poddevice

# fields that have another name here, by record and field
_RENAMED: Final = {
    ("AllocationStatus", "name"): "pod",
    ("Waiting", "name"): "pod",
    ("ConditionStatus", "last_transition_time"): "since",
    ("NodeDeviceSpec", "node_name"): "node",
    ("NodeDeviceSpec", "resource_name"): "resource",
    ("NodeDeviceSpec", "cordoned_devices"): "cordons",
    ("PodDeviceSpec", "node_name"): "node",
}


def _filled(kind: Any, path: str) -> Any:
    """A value of that type of which every part is its own: what is read from the wrong place differs."""
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        kind = next(each for each in typing.get_args(kind) if each is not type(None))
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is list:
        return [_filled(arguments[0], f"{path}[0]")]
    if origin is tuple:
        return (_filled(arguments[0], f"{path}[0]"),)
    if origin is dict:
        return {f"{path}.key": f"{path}.value"}
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints = typing.get_type_hints(kind)
        return kind(**{name: _filled(hint, f"{path}.{name}") for name, hint in hints.items()})
    return {str: path, int: len(path) * 1000 + sum(map(ord, path)), bool: True}[kind]


def _differences(written: Any, read: Any, path: str) -> Iterator[str]:
    if isinstance(written, msgspec.Struct):
        for name in written.__struct_fields__:
            own = _RENAMED.get((type(written).__name__, name), name)
            if not hasattr(read, own):
                yield f"{path}.{name} is not read: {type(read).__name__} has no {own}"
            else:
                yield from _differences(getattr(written, name), getattr(read, own), f"{path}.{name}")
    elif isinstance(read, dict) and isinstance(written, list):
        # conditions, by type
        yield from _differences(written, list(read.values()), path)
    elif isinstance(written, list | tuple):
        if len(written) != len(read):
            yield f"{path}: {read}"
        for one, other in zip(written, read, strict=False):
            yield from _differences(one, other, f"{path}[]")
    elif written != read:
        yield f"{path}: {written!r} is read as {read!r}"


def _as_json(written: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(written))
    return found


def test_a_node_device_is_read_whole() -> None:
    spec, status = _filled(nodedevice.NodeDeviceSpec, "spec"), _filled(nodedevice.NodeDeviceStatus, "status")
    written = {"metadata": {"name": "n"}, **_as_json({"spec": spec, "status": status})}
    read = objects.node_device_of(written)
    assert not list(_differences(spec, read, "spec"))
    assert not list(_differences(status, read, "status"))


def test_a_pod_device_is_read_whole() -> None:
    spec, status = _filled(poddevice.PodDeviceSpec, "spec"), _filled(poddevice.PodDeviceStatus, "status")
    read = objects.pod_device_of({"metadata": {"name": "n"}, **_as_json({"spec": spec, "status": status})})
    assert not list(_differences(spec, read, "spec"))
    assert not list(_differences(status, read, "status"))


READERS: Final[dict[str, Callable[[Any], Any]]] = {
    name: found
    for name, found in vars(objects).items()
    if name.endswith("_of") and found.__module__ == objects.__name__ and name != "conditions_of"
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    "odd", [{}, {"metadata": []}, {"metadata": 1, "spec": "x", "status": [1]}, {"spec": {"containers": [1, None, "x"]}}]
)
def test_whatever_an_object_is_like(reader: str, odd: Any) -> None:
    made = READERS[reader](odd)
    assert dataclasses.is_dataclass(made)


def test_what_an_object_lacks_has_its_default() -> None:
    read = objects.node_device_of({})
    assert read.total is None
    assert read.condition("Ready") == cluster.NO_CONDITION
    assert objects.pod_of({}).phase == ""
    bare = objects.node_device_of({"status": {"devices": [{"id": "d"}], "allocations": [{"name": "p"}]}})
    assert (bare.parts, bare.devices[0].parts, bare.allocations[0].claim) == (None, None, None)
    held = objects.node_device_of({"status": {"allocations": [{"parts": [{"parent": "d"}]}]}})
    assert held.allocations[0].parts == (cluster.HeldParts("d", sep="-"),)


def test_what_is_no_number_is_none() -> None:
    read = objects.node_device_of({"status": {"total": "4", "parts": {"smPercent": "4"}}})
    assert (read.total, read.parts) == (None, cluster.PartRules())


@pytest.mark.parametrize("read", [objects.node_device_of, objects.pod_device_of])
def test_kinds_of_ours_have_their_metadata(read: Callable[[Any], Any]) -> None:
    assert read({"metadata": {"name": "n", "uid": "u"}}).meta == cluster.Meta("n", uid="u")


def test_a_pod_has_its_init_containers_first() -> None:
    pod = objects.pod_of(
        {
            "spec": {
                "initContainers": [{"name": "side", "restartPolicy": "Always"}, {"name": "once"}],
                "containers": [{"name": "main", "resources": {"limits": {"a/b": 1}, "claims": [{"name": "c"}]}}],
                "resourceClaims": [{"name": "c", "resourceClaimTemplateName": "t"}],
            },
            "status": {
                "resourceClaimStatuses": [{"name": "c", "resourceClaimName": "made"}],
                "containerStatuses": [{"name": "main", "state": {"waiting": {"reason": "ImagePullBackOff"}}}],
            },
        }
    )
    assert [(each.name, each.is_init, each.is_sidecar) for each in pod.containers] == [
        ("side", True, True),
        ("once", True, False),
        ("main", False, False),
    ]
    main = pod.containers[-1]
    assert (main.requests, main.claims, main.state, main.reason) == (
        {"a/b": "1"},
        ("c",),
        "waiting",
        "ImagePullBackOff",
    )
    assert pod.claims == (cluster.PodClaim("c", "made", "t"),)


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "k", "operator": "Exists"}, True),
        ({"key": "k", "value": "v"}, True),
        ({"key": "k", "value": "w"}, False),
        ({"key": "k"}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"key": "k", "operator": "Exists", "effect": "NoExecute"}, False),
    ],
)
def test_tolerations(toleration: dict[str, str], expected: bool) -> None:
    pod = objects.pod_of({"spec": {"tolerations": [toleration]}})
    assert pod.tolerations[0].tolerates(cluster.Taint("k", "v", "NoSchedule")) is expected
