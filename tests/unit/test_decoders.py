"""Everything in the product that decodes input of others uses one entrance, `nodedevice_common.decoding`.

Each form that is decoded survives any text that an API server, a tenant, a damaged disk or a proxy may send.
"""

from typing import Any, Final

import pytest
from nodedevice_agent.kube.responses import KubeObject
from nodedevice_common.decoding import DEEPEST, Undecodable, decode
from nodedevice_operator.extender import wire
from nodedevice_operator.extender.stores import BOUND_PODS, NODE_PARTS
from nodedevice_operator.kube.lists import KINDS, Kind

from tests.unit import decoders
from tests.unit.common.test_decoding import hostile
from tests.unit.decoders import Call
from tests.unit.sources import shown

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


def place(call: Call) -> str:
    return f"{shown(call.path)}::{call.function}"


def is_listed(call: Call) -> bool:
    return place(call) in LIBRARIES or f"{shown(call.path)}::*" in LIBRARIES


def test_nothing_is_decoded_but_by_the_entrance() -> None:
    found = [call.where for call in decoders.library_decoders() if not is_listed(call)]
    assert not found, "\n".join(["decode it by nodedevice_common.decoding, which survives any depth:", *found])


@pytest.mark.parametrize("listed", LIBRARIES)
def test_an_exception_is_of_something(listed: str) -> None:
    places = {place(call) for call in decoders.library_decoders()}
    assert listed in places or listed.endswith("*"), "nothing is decoded there any more: remove it"


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
