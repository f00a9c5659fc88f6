"""The records of NodeDevice and PodDevice have the fields of their CRDs, and no others."""

from collections.abc import Iterator
from typing import Final

import msgspec
import pytest
from msgspec import inspect
from nodedevice_agent.devicemanager.resources.presence import EndpointState
from nodedevice_api.nodedevice import (
    AllocationStatus,
    CordonedDevice,
    DeviceStatus,
    EndpointStatus,
    NodeDeviceSpec,
    NodeDeviceStatus,
    PartRulesStatus,
)
from nodedevice_api.parts import OLD_SEPARATOR, SEPARATOR, Advertise, Choice, Placement, PodPlacement
from nodedevice_api.poddevice import PodDeviceSpec, PodDeviceStatus
from nodedevice_api.wire import Record

from tests.unit.api.test_crds import ROOT, Schema, load, schemas

RECORDS: Final = {
    "nodedevices": {"spec": NodeDeviceSpec, "status": NodeDeviceStatus},
    "poddevices": {"spec": PodDeviceSpec, "status": PodDeviceStatus},
}
PARTS: Final = [(kind, part) for kind, of_kind in RECORDS.items() for part in of_kind]
WORDS: Final = {inspect.StrType: "string", inspect.IntType: "integer", inspect.BoolType: "boolean"}


def schema_of(kind: str, part: str) -> Schema:
    crd = load(ROOT / "crds" / f"{kind}.yaml")
    found: Schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"][part]
    return found


def fields_of(found: inspect.Type, path: str = "") -> Iterator[tuple[str, str, bool]]:
    """Of each field below: its path, its type in a schema, and whether an object has to have it."""
    match found:
        case inspect.UnionType(types=types):
            (one,) = (each for each in types if not isinstance(each, inspect.NoneType))
            yield from fields_of(one, path)
        case inspect.StructType(fields=fields):
            yield path, "object", False
            for field in fields:
                (_, word, _), *below = fields_of(field.type, f"{path}.{field.encode_name}")
                yield from ((f"{path}.{field.encode_name}", word, field.required), *below)
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            yield from ((path, "array", False), *fields_of(item, f"{path}[]"))
        case inspect.DictType(value_type=value):
            yield from ((path, "object", False), *fields_of(value, f"{path}{{}}"))
        case _:
            yield path, WORDS[type(found)], False


@pytest.mark.parametrize(("kind", "part"), PARTS)
def test_both_have_the_same_fields_of_the_same_types(kind: str, part: str) -> None:
    found = {path: word for path, word, _ in fields_of(inspect.type_info(RECORDS[kind][part]))}
    assert found == {path: schema["type"] for path, schema in schemas(schema_of(kind, part))}


@pytest.mark.parametrize(("kind", "part"), PARTS)
def test_what_a_record_cannot_do_without_the_crd_requires(kind: str, part: str) -> None:
    """Otherwise an object that the API server takes would not decode."""
    needed = {path for path, _, is_required in fields_of(inspect.type_info(RECORDS[kind][part])) if is_required}
    assert needed <= {
        f"{path}.{name}" for path, each in schemas(schema_of(kind, part)) for name in each.get("required", ())
    }


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("endpoint.state", [state.value for state in EndpointState]),
        ("parts.placement", list(Placement)),
        ("parts.choice", list(Choice)),
        ("parts.containers", list(PodPlacement)),
        ("parts.advertise", list(Advertise)),
        ("allocations.items.parts.items.sep", [SEPARATOR, OLD_SEPARATOR]),
    ],
)
def test_words_are_those_of_the_crd(path: str, words: list[str]) -> None:
    schema = schema_of("nodedevices", "status")
    for name in path.split("."):
        schema = schema["items"] if name == "items" else schema["properties"][name]
    assert sorted(schema["enum"]) == sorted(map(str, words))


_ENDPOINT: Final = "state preStartRequired getPreferredAllocationAvailable since"
_LISTS: Final = "devices devicesOmitted allocations allocationsOmitted waiting"


@pytest.mark.parametrize(
    ("record", "encoded"),
    [
        pytest.param(EndpointStatus(), _ENDPOINT, id="all"),
        pytest.param(DeviceStatus(id="a"), "id health since", id="of a device"),
        pytest.param(CordonedDevice(id="a"), "id", id="notes without a writer"),
        pytest.param(NodeDeviceSpec(node_name="n", resource_name="r"), "nodeName resourceName", id="no cordons"),
        pytest.param(
            AllocationStatus(pod_uid="p", container="c"), "namespace name podUID container", id="nothing held"
        ),
        pytest.param(PartRulesStatus(sm_percent=0), "... smPercent largestAvailable", id="a percent of 0"),
        pytest.param(NodeDeviceStatus(total=0), f"total ... {_LISTS} ... conditions", id="empty lists and zeros"),
    ],
)
def test_what_is_encoded_of_a_record_that_has_its_defaults(record: Record, encoded: str) -> None:
    """An apply that lacks a field keeps another writer's value of it; a note without a writer is none.

    encoded: the fields in their order; ... for any more.
    """
    keys = iter(msgspec.to_builtins(record))
    for key in encoded.split():
        assert key == "..." or key in keys, "missing, or in another order"
    assert "..." in encoded or not list(keys)


@pytest.mark.parametrize("record", [r for of_kind in RECORDS.values() for r in of_kind.values()])
def test_fields_of_a_later_release_are_skipped_and_those_of_an_earlier_one_absent(record: type[Record]) -> None:
    required = {f.encode_name: "x" for f in msgspec.structs.fields(record) if f.required}
    found = msgspec.convert({**required, "later": {"a": [1]}}, record)
    assert msgspec.convert(msgspec.to_builtins(found), record) == found
