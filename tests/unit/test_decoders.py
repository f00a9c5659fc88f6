"""The class: everything of the product that decodes what others have written, whatever that is.

All of it goes through one entrance, `nodedevice_common.decoding`; each caller takes its one error; and each form survives what an
API server, a tenant, a damaged disk or a proxy may come up with. What libraries decode by themselves is listed with its shield.
"""

import ast
from typing import Any, Final

import pytest
from google.protobuf import struct_pb2
from google.protobuf.message import DecodeError
from nodedevice_agent.kube.responses import KubeObject
from nodedevice_common.decoding import DEEPEST, Undecodable, decode
from nodedevice_operator.extender import wire
from nodedevice_operator.extender.stores import BOUND_PODS, NODE_PARTS
from nodedevice_operator.kube.lists import KINDS, Kind

from tests.unit import decoders
from tests.unit.common.test_decoding import hostile
from tests.unit.decoders import Call
from tests.unit.sources import ROOT, parsed, shown

# file::function: why a decoder of a library is called there
LIBRARIES: Final = {
    "common/src/nodedevice_common/decoding.py::*": "the entrance",
    "common/src/nodedevice_common/yaml_decoding.py::*": "the entrance for YAML",
    "kube/src/nodedevice_kube/decoding.py::*": "the entrance of the client core, which imports nothing of ours",
    "cli/src/kubectl_nodedevice/commands/config.py::_schemas": "a file of this package",
    "proto/src/nodedevice_api/assigned_parts.py::decode": "imports nothing of ours; at most 16 KiB, and takes RecursionError",
    "node-agent/src/nodedevice_agent/kube/kept_status.py::read": "what this process encoded itself",
    "node-agent/src/nodedevice_agent/runtime/runtime_config.py::_parsed": "TOML, of the node's runtime; takes RecursionError",
    "operator/src/nodedevice_operator/configs/kopf_limits.py::store": "kopf's values come from ShallowResponse",
    "operator/src/nodedevice_operator/configs/kopf_limits.py::clear": "kopf's values come from ShallowResponse",
    "operator/src/nodedevice_operator/configs/kopf_limits.py::json": "ShallowResponse itself, which decodes by the entrance",
}
# The same of functions that call the entrance and do not take its error.
NOBODY_TAKES: Final = {
    "operator/src/nodedevice_operator/cli/crds.py::shipped": "files of this package",
    "common/src/nodedevice_common/metrics_authorization.py::_reviewed": "it takes whatever the coroutine raises",
    "node-agent/src/nodedevice_agent/plugins/nvml/reader/__main__.py::main": "takes everything, and ends: what its parent gave it",
}
# What libraries decode by themselves of what others have written: which test shows that nothing deep gets there, or ends there.
SHIELDED: Final = {
    "kopf: json.loads of answers and lines, copy.deepcopy and diffs of objects": (
        "tests/unit/operator/configs/test_kopf_limits.py::test_a_library_gets_nothing_that_is_too_deep_for_it"
    ),
    "kubernetes: json.loads of CRDs": (
        "tests/unit/operator/kube/test_typed.py::test_a_response_that_is_too_deep_is_an_error_of_ours"
    ),
    "protobuf: nests at most 100 messages by itself": "tests/unit/test_decoders.py::test_protobuf_has_a_limit_of_its_own",
}
_RAISES: Final = "Raises Undecodable"


def place(call: Call) -> str:
    return f"{shown(call.path)}::{call.function}"


def is_listed(call: Call, exceptions: dict[str, str]) -> bool:
    return place(call) in exceptions or f"{shown(call.path)}::*" in exceptions


def test_nothing_is_decoded_but_by_the_entrance() -> None:
    found = [call.where for call in decoders.library_decoders() if not is_listed(call, LIBRARIES)]
    assert not found, "\n".join(["decode it by nodedevice_common.decoding, which survives any depth:", *found])


@pytest.mark.parametrize("listed", LIBRARIES)
def test_an_exception_is_of_something(listed: str) -> None:
    places = {place(call) for call in decoders.library_decoders()}
    assert listed in places or listed.endswith("*"), "nothing is decoded there any more: remove it"


@pytest.mark.parametrize("name", SHIELDED.values(), ids=SHIELDED.keys())
def test_the_shield_is_there(name: str) -> None:
    path, _, function = name.partition("::")
    assert any(getattr(node, "name", "") == function for node in parsed(ROOT / path).body)


def test_protobuf_has_a_limit_of_its_own() -> None:
    message = struct_pb2.Value()
    message.ParseFromString(b"")
    text = b""
    for _ in range(200):
        # field 6 of Value is a list, field 1 of a list is a Value
        inner = b"\x0a" + varint(len(text)) + text
        text = b"\x32" + varint(len(inner)) + inner
    with pytest.raises(DecodeError):
        message.ParseFromString(text)


def varint(number: int) -> bytes:
    return bytes([number & 127 | 128]) + varint(number >> 7) if number > 127 else bytes([number])


def test_each_caller_takes_the_one_error_or_says_that_it_raises_it() -> None:
    raising = {f"{module}.{name}" for module, functions in decoders.ENTRANCE.items() for name in functions}
    raising.discard("nodedevice_common.decoding.shallow")  # which raises nothing
    found: list[str] = []
    while True:
        calls = [call for call in decoders.calls() if decoders.target(call) in raising and not takes_it(call)]
        found = [call.where for call in calls if _RAISES not in docstring(call)]
        more = {decoders.source(call) for call in calls} - raising
        if found or not more:
            break
        raising |= more
    assert not found, "\n".join([f"catch Undecodable there, or say `{_RAISES}` in the docstring:", *found])


def takes_it(call: Call) -> bool:
    is_entrance = place(call).startswith("common/src/nodedevice_common/decoding.py")
    taken = decoders.handled(call) & {"Undecodable", "ValueError", "Exception", "BaseException", "_request"}
    return bool(taken) or is_entrance or is_listed(call, NOBODY_TAKES)


def docstring(call: Call) -> str:
    for node in ast.walk(parsed(call.path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == call.function:
            return ast.get_docstring(node) or ""
    return ""


# -- every form, and every text ----------------------------------------------------------------------------------------------


def all_forms() -> dict[str, Any]:
    decoders.import_all()
    kinds: tuple[Kind[Any], ...] = (*KINDS, BOUND_PODS, NODE_PARTS)
    found = decoders.forms()
    found |= {f"{kind.name} {part}": getattr(kind, part) for kind in kinds for part in ("schema", "page", "event")}
    found |= {f"agent's {kind.__name__}": kind for kind in subclasses(KubeObject)}
    found |= {form.__name__: form for form in (wire.FilterRequest, wire.BindRequest, wire.PreemptRequest)}
    return found


def subclasses(kind: type) -> list[type]:
    direct: list[type] = kind.__subclasses__()
    return [each for found in direct for each in (found, *subclasses(found))]


FORMS: Final = all_forms()


def test_the_forms_are_found() -> None:
    assert {
        "nodes event",
        "agent's PodObject",
        "agent's NodeDeviceConfigObject",
        "FilterRequest",
        "pods schema",
    } <= FORMS.keys()
    assert any("_File" in name for name in FORMS)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_every_form_survives_what_nobody_should_send(form: Any) -> None:
    """Either it decodes or there is the one error."""
    for _, text in hostile():
        try_to_decode(text, form)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_every_form_survives_any_depth(form: Any) -> None:
    """In managedFields, and where a kind keeps unknown fields: what is decoded is no deeper than anything can take."""
    for text in deep_texts(10_000):
        found = try_to_decode(text, form)
        assert depth_of(found) <= DEEPEST + 1
        repr(found)


def try_to_decode(text: bytes, form: Any) -> Any:
    try:
        return decode(text, form)
    except Undecodable:
        return None


def deep_texts(depth: int) -> list[bytes]:
    deep = "[" * depth + "]" * depth
    metadata = f'{{"name":"x","uid":"u","resourceVersion":"1","managedFields":[{{"manager":"m","fieldsV1":{deep}}}]}}'
    spec = f'{{"nodeName":"n","resourceName":"a.b/c","unknown":{deep},"plugins":{{"nvml":{deep}}},"containers":[]}}'
    anything = (
        f'{{"metadata":{metadata},"spec":{spec},"status":{{"unknown":{deep},"f:status":{deep}}},"fieldsV1":{deep}}}'
    )
    in_list = f'{{"metadata":{{"resourceVersion":"1"}},"items":[{anything}]}}'
    event = f'{{"type":"ADDED","object":{anything}}}'
    request = f'{{"pod":{anything},"nodeNames":["n"],"Pod":{anything},"NodeNames":["n"]}}'
    return [
        text.encode() for text in (anything, in_list, event, request, deep, f'{{"f:status":{deep},"status":{deep}}}')
    ]


def depth_of(value: Any) -> int:
    """Of dicts and lists within each other, wherever the form keeps any."""
    deepest, rest = 0, [(value, 0)]
    while rest:
        found, depth = rest.pop()
        deepest = max(deepest, depth)
        if isinstance(found, dict):
            rest += [(each, depth + 1) for each in found.values()]
        elif isinstance(found, list | tuple):
            rest += [(each, depth + 1) for each in found]
        elif hasattr(found, "__struct_fields__"):
            rest += [(getattr(found, name), depth) for name in found.__struct_fields__]
    return deepest
