"""Whatever the API server has stored, however deep or odd: each request of the agent gets an object, no list fails for one."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest
from nodedevice_agent.kube import responses
from nodedevice_agent.kube.client import KubeClient
from nodedevice_agent.kube.objects import NodeDeviceConfigObject, NodeDeviceObject, NodeMetadataObject
from nodedevice_agent.kube.pod_objects import PodObject, from_api
from nodedevice_kube.api_errors import Forbidden, InvalidResponse

from tests.unit.common.test_decoding import nested
from tests.unit.node_agent.kube.test_requests import Server


def an_object(name: str, depth: int = 1, spec: str = "{}") -> str:
    fields = f'[{{"manager":"m","fieldsV1":{nested(depth, "{}")}}}]'
    metadata = f'{{"name":"{name}","namespace":"ns","uid":"uid-{name}","resourceVersion":"7","managedFields":{fields}}}'
    return f'{{"metadata":{metadata},"spec":{spec}}}'


def a_list(*objects: str) -> bytes:
    return f'{{"metadata":{{"resourceVersion":"9"}},"items":[{",".join(objects)}]}}'.encode()


Ask = Callable[[KubeClient], Awaitable[Any]]
LEASE: Final = {"metadata": {"name": "n", "namespace": "ns"}}
ONE: Final[dict[str, Ask]] = {
    "node_uid": lambda c: c.node_uid("n"),
    "node_capacity": lambda c: c.node_capacity("n"),
    "create_node_device": lambda c: c.create_node_device(("n", "u"), "example.com/gpu"),
    "apply_status": lambda c: c.apply_status("n", {}),
    "get_lease": lambda c: c.get_lease("ns", "n"),
    "create_lease": lambda c: c.create_lease(LEASE),
    "replace_lease": lambda c: c.replace_lease(LEASE),
    "review": lambda c: c.review("authentication.k8s.io", "TokenReview", {}),
}
KINDS: Final = (PodObject, NodeMetadataObject, NodeDeviceObject, NodeDeviceConfigObject)


@pytest.mark.parametrize("request_one", ONE.values(), ids=ONE.keys())
async def test_one_object(cluster: KubeClient, server: Server, request_one: Ask) -> None:
    server.body = an_object("x", 10_000).encode()
    await request_one(cluster)


@pytest.mark.parametrize("kind", KINDS)
async def test_lists_and_watches(cluster: KubeClient, server: Server, kind: Any) -> None:
    objects = [an_object("a"), an_object("deep", 10_000, f'{{"plugins":{nested(10_000)}}}'), an_object("z")]
    server.body = a_list(*objects)
    found, version = await cluster.list(kind, {})
    assert ([one.metadata.name for one in found], version) == (["a", "deep", "z"], "9")
    server.body = b"".join(f'{{"type":"ADDED","object":{each}}}\n'.encode() for each in objects)
    async with cluster.watch(kind, {}, "1", 60) as events:
        assert [one.metadata.name async for _, one in events] == ["a", "deep", "z"]


ODD: Final = an_object("odd", 1, '{"containers":[{"name":"main","env":7,"resources":{"limits":{"a.com/b":"2"}}}]}')


async def test_a_pod_of_another_form_is_known_by_its_name(
    cluster: KubeClient, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Were it left out, its devices would be free."""
    server.body = a_list(an_object("a"), ODD)
    for _ in range(3):
        found, _ = await cluster.list(PodObject, {})
    server.body = f'{{"type":"MODIFIED","object":{ODD}}}\n'.encode()
    async with cluster.watch(PodObject, {}, "1", 60) as events:
        found += [one async for _, one in events]
    pods = [from_api(pod) for pod in found]
    assert [(pod.name, pod.uid, len(pod.containers)) for pod in pods[1:]] == [("odd", "uid-odd", 0)] * 2
    [line] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert line.message == "cannot decode object; skipping it"
    assert (vars(line)["object"], vars(line)["namespace"]) == ("odd", "ns")
    assert "kubectl delete pods odd -n ns" in vars(line)["remedy"]


async def test_one_that_is_too_long_is_known_by_its_name_and_its_neighbours_are_read(
    cluster: KubeClient, server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(responses, "MOST_OBJECT_BYTES", 32 * 1024)
    server.body = a_list(an_object("a"), an_object("long", 1, f'"{"x" * 40_000}"'), an_object("z"))
    found, _ = await cluster.list(PodObject, {})
    known = [(pod.metadata.name, pod.metadata.namespace, pod.metadata.uid) for pod in found]
    assert known == [(name, "ns", f"uid-{name}") for name in ("a", "long", "z")]
    [line] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert (line.__dict__["object"], line.__dict__["error"]) == ("long", "it is longer than 0 MiB")
    with pytest.raises(InvalidResponse, match="it is longer than"):
        await cluster.list(NodeDeviceObject, {})


async def test_of_another_kind_nothing_is_concluded(cluster: KubeClient, server: Server) -> None:
    """A NodeDevice without its spec would have no cordons."""
    server.body = a_list(an_object("odd", 1, "7"))
    with pytest.raises(InvalidResponse, match="cannot decode the response"):
        await cluster.list(NodeDeviceObject, {})


async def test_an_error_of_any_depth(cluster: KubeClient, server: Server) -> None:
    server.status, server.body = 403, f'{{"message":"no","details":{nested(10_000)}}}'.encode()
    with pytest.raises(Forbidden):
        await cluster.node_uid("n")


@pytest.mark.parametrize("body", [b"", b"<html>", b"\xff", b'{"items": 7}', b"[" * 20_000])
async def test_what_is_no_answer_of_an_api_server(cluster: KubeClient, server: Server, body: bytes) -> None:
    server.body = body
    for kind in KINDS:
        with pytest.raises(InvalidResponse):
            await cluster.list(kind, {})
