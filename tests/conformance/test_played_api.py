"""The played API server and a real one give the same responses to the same requests, but for what is named here.

Not compared: which field manager owns which field, how many items remain after a page, and versions of storage in discovery.
The played one validates nothing, admits everything, and defaults nothing.
"""

import http.client
import json
import re
import subprocess
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlsplit

import pytest

from tests.cluster.build.binaries import find
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.fakes.played_api.kinds import NODE_DEVICES, POD_DEVICES
from tests.fakes.played_api.server import PlayedApi
from tests.fakes.played_api.serving import serving

NAMESPACE: Final = "played-api"
CONFIG_MAPS: Final = "/api/v1/configmaps"
MAPS: Final = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
_JSON, _MERGE, _JSON_PATCH = "application/json", "application/merge-patch+json", "application/json-patch+json"
_APPLY: Final = "application/apply-patch+yaml"
_TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
_DIFFERS: Final = {
    "uid": "a uid",
    "resourceVersion": "a version",
    "creationTimestamp": "a time",
    "continue": "a token",
    "managedFields": None,
    "remainingItemCount": None,
}


class Response(NamedTuple):
    status: int
    kind: str
    content: Any


class Api:
    """One of the two, by plain HTTP."""

    def __init__(self, address: str) -> None:
        self._host = urlsplit(address).netloc

    def __call__(
        self, verb: str, path: str, body: Any = None, kind: str = _JSON, accept: str = _JSON, **query: str
    ) -> Response:
        connection = http.client.HTTPConnection(self._host, timeout=60)
        asked = "&".join(f"{key}={quote(value, safe='')}" for key, value in query.items())
        headers = {"Accept": accept, **({"Content-Type": kind} if body is not None else {})}
        content = None if body is None else json.dumps(body)
        connection.request(verb, f"{path}?{asked}" if asked else path, content, headers)
        response = connection.getresponse()
        octets, content_type = response.read(), (response.headers["Content-Type"] or "").partition(";")[0]
        connection.close()
        if "watch" in query:
            return Response(response.status, content_type, [json.loads(line) for line in octets.splitlines()])
        is_text = content_type == "text/plain"
        return Response(response.status, content_type, octets.decode() if is_text else json.loads(octets))


def comparable(value: Any) -> Any:
    """Without what may differ."""
    if isinstance(value, dict):
        named = {key: _DIFFERS.get(key, comparable(each)) for key, each in value.items() if each != ""}
        return {key: each for key, each in named.items() if each is not None or key not in _DIFFERS}
    if isinstance(value, list | tuple):
        return [comparable(each) for each in value]
    return re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}|uid-\d+|\d{3,}", "#", value) if isinstance(value, str) else value


def a_map(name: str, row: str, **data: str) -> dict[str, Any]:
    metadata = {"name": f"{row}-{name}", "namespace": NAMESPACE, "labels": {"row": row}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data or {"a": "b"}}


def a_node_device(node: str) -> dict[str, Any]:
    spec = {"nodeName": node, "resourceName": "example.com/gpu"}
    metadata = {"name": f"{node}.example.com.gpu"}
    return {"apiVersion": "nodedevice.io/v1alpha1", "kind": "NodeDevice", "metadata": metadata, "spec": spec}


# -- rows: each returns what it was sent ------------------------------------------------------------------------------------


def missing(api: Api) -> Iterator[Response]:
    yield api("GET", f"{MAPS}/none")
    yield api("GET", f"{NODE_DEVICES}/none")
    yield api("PATCH", f"{NODE_DEVICES}/none", {"spec": {}}, _MERGE)
    yield api("DELETE", f"{MAPS}/none")
    yield api("GET", "/apis/nothing.example.com/v1/things")


def created(api: Api) -> Iterator[Response]:
    for _ in range(2):
        yield api("POST", MAPS, a_map("a", "created", key="<&>"))
        yield api("POST", NODE_DEVICES, a_node_device("created"))
    yield api("GET", f"{MAPS}/created-a")


def pages(api: Api) -> Iterator[Response]:
    for name in "abcde":
        api("POST", MAPS, a_map(name, "pages"))
    token = ""
    for _ in range(3):
        page = api("GET", MAPS, labelSelector="row=pages", limit="2", **({"continue": token} if token else {}))
        token = page.content["metadata"].get("continue", "")
        yield page
    refused = api("GET", MAPS, **{"continue": "none"})
    refused.content["message"] = refused.content["message"].rpartition(": ")[0]
    yield refused


def selected(api: Api) -> Iterator[Response]:
    for name in "abc":
        api("POST", MAPS, a_map(name, "selected"))
    for terms in ("row in (selected,other),row!=x", "row notin (pages),row=selected", "!row,x=y"):
        yield api("GET", MAPS, labelSelector=terms)
    for terms in ("metadata.name=selected-b", "metadata.name!=selected-b,metadata.namespace=" + NAMESPACE):
        yield api("GET", CONFIG_MAPS, labelSelector="row=selected", fieldSelector=terms)


def selected_by_own_fields(api: Api) -> Iterator[Response]:
    for node in ("field-a", "field-b"):
        api("POST", NODE_DEVICES, a_node_device(node))
    yield api("GET", NODE_DEVICES, fieldSelector="spec.nodeName=field-a")
    yield api("GET", NODE_DEVICES, fieldSelector="spec.nodeName=field-a", watch="true", timeoutSeconds="1")
    yield api("GET", NODE_DEVICES, fieldSelector="spec.other=x")
    yield api("GET", POD_DEVICES, fieldSelector="spec.resourceName=x")


def changed(api: Api) -> Iterator[Response]:
    path, made = f"{MAPS}/changed-a", api("POST", MAPS, a_map("a", "changed", old="1"))
    yield api("PATCH", path, {"data": {"old": None, "new": "2"}}, _MERGE)
    yield api("PATCH", path, [{"op": "add", "path": "/data/more", "value": "3"}], _JSON_PATCH)
    yield api("PATCH", path, [{"op": "test", "path": "/data/more", "value": "4"}], _JSON_PATCH)
    yield api("PATCH", path, [{"op": "remove", "path": "/data/none"}], _JSON_PATCH)
    former = made.content["metadata"]["resourceVersion"]
    version = {"op": "replace", "path": "/metadata/resourceVersion", "value": former}
    yield api("PATCH", path, [version], _JSON_PATCH)
    yield api("PUT", path, {**made.content, "data": {"put": "5"}})
    current = api("GET", path).content
    yield api("PUT", path, {**current, "data": {"put": "5"}})
    unchanged = api("PATCH", path, {"data": {"put": "5"}}, _MERGE)
    yield unchanged
    assert unchanged.content["metadata"]["resourceVersion"] == api("GET", path).content["metadata"]["resourceVersion"]


def replaced_before_it_exists(api: Api) -> Iterator[Response]:
    """A Lease is created by it, also if it names the version of a deleted one; other kinds are not."""
    lease: dict[str, Any] = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "put", "namespace": NAMESPACE},
        "spec": {"holderIdentity": "a"},
    }
    path = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/put"
    yield api("PUT", f"{MAPS}/put-a", a_map("a", "put"))
    made = api("PUT", path, lease)
    yield made
    yield api("PUT", path, {**made.content, "spec": {"holderIdentity": "b"}})
    yield api("PUT", path, {**made.content, "spec": {"holderIdentity": "c"}})
    api("DELETE", path)
    version = {"resourceVersion": made.content["metadata"]["resourceVersion"]}
    yield api("PUT", path, {**lease, "metadata": {**lease["metadata"], **version}})


def applied(api: Api) -> Iterator[Response]:
    body = a_map("a", "applied", one="1", two="2")
    path = f"{MAPS}/applied-a"
    for data in (body["data"], body["data"], {"one": "1"}):
        yield api("PATCH", path, {**body, "data": data}, _APPLY, fieldManager="first", force="true")
    yield api("PATCH", path, {**body, "data": {"three": "3"}}, _APPLY, fieldManager="second", force="true")


def statuses(api: Api) -> Iterator[Response]:
    path = f"{NODE_DEVICES}/status.example.com.gpu"
    api("POST", NODE_DEVICES, a_node_device("status"))
    yield api("PATCH", f"{path}/status", {"status": {"total": 2}, "spec": {"cordonedDevices": [{"id": "a"}]}}, _MERGE)
    yield api("PATCH", path, {"status": {"total": 3}, "metadata": {"labels": {"a": "b"}}}, _MERGE)
    yield api("PATCH", path, {"spec": {"cordonedDevices": [{"id": "gpu-0", "reason": "fan"}]}}, _MERGE)


def tables(api: Api) -> Iterator[Response]:
    ready = {"type": "Ready", "status": "False", "reason": "NoDevices", "message": "none"}
    condition = {**ready, "lastTransitionTime": "2026-01-02T03:04:05Z"}
    path = f"{NODE_DEVICES}/table.example.com.gpu"
    api("POST", NODE_DEVICES, a_node_device("table"))
    api("PATCH", f"{path}/status", {"status": {"total": 2, "healthy": 1, "conditions": [condition]}}, _MERGE)
    for objects in ("None", "Metadata", "Object"):
        only = "spec.nodeName=table"
        table = api("GET", NODE_DEVICES, accept=_TABLE, fieldSelector=only, includeObject=objects)
        # the age
        table.content["rows"][0]["cells"].pop()
        # written by the API server itself
        table.content["columnDefinitions"][0].pop("description")
        yield table


def watches(api: Api) -> Iterator[Response]:
    before = api("GET", MAPS).content["metadata"]["resourceVersion"]
    api("POST", MAPS, a_map("a", "watches"))
    api("POST", MAPS, a_map("b", "watches"))
    path = f"{MAPS}/watches-a"
    api("PATCH", path, {"data": {"a": "b"}}, _MERGE)
    api("PATCH", path, {"metadata": {"labels": {"row": "elsewhere"}}}, _MERGE)
    api("PATCH", path, {"metadata": {"labels": {"row": "watches"}}}, _MERGE)
    api("DELETE", path)
    options = {"watch": "true", "timeoutSeconds": "1"}
    yield api("GET", MAPS, resourceVersion=before, labelSelector="row=watches", **options)
    yield api("GET", MAPS, resourceVersion=before, fieldSelector="metadata.name=watches-b", **options)
    yield api("GET", MAPS, labelSelector="row=watches", **options)


def bookmarks(api: Api) -> Iterator[Response]:
    api("POST", MAPS, a_map("a", "bookmarks"))
    options = {"watch": "true", "allowWatchBookmarks": "true", "labelSelector": "row=bookmarks"}
    initial = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
    yield api("GET", MAPS, timeoutSeconds="1", **options, **initial)
    yield api("GET", MAPS, timeoutSeconds="1", **options)


def too_old(api: Api) -> Iterator[Response]:
    yield api("GET", NODE_DEVICES, watch="true", resourceVersion="1", timeoutSeconds="5")


def deleted(api: Api) -> Iterator[Response]:
    api("POST", MAPS, a_map("a", "deleted"))
    api("POST", NODE_DEVICES, a_node_device("deleted"))
    for path in (f"{MAPS}/deleted-a", f"{NODE_DEVICES}/deleted.example.com.gpu"):
        yield api("DELETE", path, {"preconditions": {"uid": "another"}})
        yield api("DELETE", path)
        yield api("DELETE", path)


def discovered(api: Api) -> Iterator[Response]:
    found = api("GET", "/apis/nodedevice.io/v1alpha1")
    for each in found.content["resources"]:
        for key in ("verbs", "storageVersionHash", "shortNames", "categories"):
            each.pop(key, None)
    found.content["resources"].sort(key=lambda each: each["name"])
    yield found


ROWS: Final[tuple[Callable[[Api], Iterator[Response]], ...]] = (
    missing,
    created,
    pages,
    selected,
    selected_by_own_fields,
    changed,
    replaced_before_it_exists,
    applied,
    statuses,
    tables,
    watches,
    bookmarks,
    too_old,
    deleted,
    discovered,
)


@pytest.fixture(scope="module")
def both(installed: ControlPlane) -> Iterator[tuple[Api, Api]]:
    installed.add_namespace(NAMESPACE)
    played = PlayedApi()
    played.serve(CONFIG_MAPS)
    played.forget()
    command = [str(find(["kubectl"])["kubectl"]), "--kubeconfig", str(installed.admin_kubeconfig), "proxy", "--port=0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as proxy, serving(played):
        assert proxy.stdout is not None
        port = proxy.stdout.readline().rpartition(":")[2].strip()
        yield Api(f"http://127.0.0.1:{port}"), Api(played.address)
        proxy.kill()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.__name__)
def test_the_same_responses(row: Callable[[Api], Iterator[Response]], both: tuple[Api, Api]) -> None:
    real, played = both
    expected, found = (comparable([tuple(each) for each in row(api)]) for api in (real, played))
    assert found == expected
