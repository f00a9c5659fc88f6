"""Answers that no API server gives, and lists in which one object is not understood."""

import json
from typing import Any

import msgspec
import pytest
from nodedevice_kube.api_errors import InvalidResponse
from nodedevice_operator.kube.decode import decode, decode_object, decode_page
from nodedevice_operator.kube.lists import NODE_DEVICES, NODES, POD_DEVICES, Kind
from nodedevice_operator.objects.node import NodeSchema
from nodedevice_operator.objects.nodedevice_schema import NodeDeviceSchema

from tests.unit.common.test_decoding import nested


def node_device(name: str, **more: Any) -> dict[str, Any]:
    spec = {"nodeName": "node-a", "resourceName": "example.com/gpu"}
    return {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": spec, "status": {"total": 1}, **more}


def a_list(*items: Any) -> bytes:
    return json.dumps({"metadata": {"resourceVersion": "7", "continue": "next"}, "items": items}).encode()


def page_of(kind: Kind[Any], data: bytes) -> tuple[Any, frozenset[Any]]:
    return decode_page(kind.name, data, kind.page, kind.schema, needs_status=kind.needs_status)


@pytest.mark.parametrize("data", [b"", b"<html>", b"\xff\xfe", b"{", b"[]", b"{}", b'{"metadata": 1}'])
def test_anything_else_is_one_error(data: bytes) -> None:
    for decoded in (lambda: decode("GET", "nodes", data, NodeSchema), lambda: page_of(NODES, data)):
        with pytest.raises(InvalidResponse, match="GET nodes: the response is not what an API server sends"):
            decoded()


def test_of_a_nodedevice_that_is_not_understood_it_is_known_whose_it_is(caplog: pytest.LogCaptureFixture) -> None:
    odd = node_device("odd", status={"total": "many"})
    content = a_list(node_device("a"), odd, node_device("b"))
    page, undecoded = page_of(NODE_DEVICES, content)
    assert undecoded == frozenset()
    assert [(one.metadata.name, one.status.total) for one in page.items] == [("a", 1), ("odd", None), ("b", 1)]
    assert (page.metadata.resource_version, page.metadata.continue_) == ("7", "next")
    [logged] = [record for record in caplog.records if record.levelname == "ERROR"]
    assert (logged.message, logged.__dict__["object"]) == ("cannot decode object; skipping it", "odd")


def test_one_of_which_not_even_that_is_known_is_undecoded(caplog: pytest.LogCaptureFixture) -> None:
    odd = [node_device("odd", spec=[]), {"metadata": 3}, 4, None]
    page, undecoded = page_of(NODE_DEVICES, a_list(*odd, node_device("a")))
    assert [one.metadata.name for one in page.items] == ["a"]
    assert undecoded == {"odd", None}
    logged = [(vars(each).get("namespace"), vars(each)["object"]) for each in caplog.records]
    assert logged == [(None, "odd"), *[(None, "")] * 3]
    assert decode_object("nodedevices", msgspec.Raw(b"[]"), NodeDeviceSchema, needs_status=False) is None


def test_an_object_with_a_text_that_is_not_utf_8_keeps_no_other_out() -> None:
    odd, nameless = node_device("odd", status={"endpoint": {"state": "TEXT"}}), node_device("TEXT")
    page, undecoded = page_of(NODE_DEVICES, a_list(odd, nameless, node_device("a")).replace(b"TEXT", b"\xff"))
    assert [(one.metadata.name, one.status.total) for one in page.items] == [("odd", None), ("a", 1)]
    assert undecoded == {None}


@pytest.mark.parametrize(
    ("kind", "odd", "key"),
    [
        (NODES, {"metadata": {"name": "odd"}, "status": {"capacity": []}}, "odd"),
        (POD_DEVICES, {"metadata": {"name": "odd", "namespace": "default"}, "spec": []}, ("default", "odd")),
    ],
    ids=["a Node without a status is none", "in a namespace by both its names"],
)
def test_one_that_is_not_understood_is_undecoded_by_its_key(kind: Kind[Any], odd: dict[str, Any], key: Any) -> None:
    page, undecoded = page_of(kind, a_list(odd))
    assert page.items == []
    assert undecoded == {key}


@pytest.mark.parametrize("kind", [NODES, NODE_DEVICES, POD_DEVICES], ids=lambda kind: kind.name)
def test_a_deep_object_costs_no_other(kind: Kind[Any], caplog: pytest.LogCaptureFixture) -> None:
    """Nor itself, where the deep part is nothing that is needed."""
    deep = json.dumps(node_device("deep", unknown="@")).replace('"@"', nested(10_000))
    content = a_list(node_device("a"), "@", node_device("b")).replace(b'"@"', deep.encode())
    page, undecoded = page_of(kind, content.replace(b'"total": 1', b'"capacity": {}'))
    assert ([one.metadata.name for one in page.items], undecoded) == (["a", "deep", "b"], frozenset())
    assert caplog.records == []
