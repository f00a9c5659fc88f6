"""A minimal API server for both programs, in this process and in memory: no validation, no access control.

    async with ApiServer() as api:
        api.put("/api/v1/nodes", {...}); api.kubeconfig(path)

Server-side apply keeps managedFields by manager and merges lists of conditions by type; other lists are replaced. Every
write calls `on_write(verb, path)` before it is carried out.
"""

import asyncio
import json
import re
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp.web
import yaml

Json = dict[str, Any]

# Discovery responses, by group: both programs find their own kinds there, and kopf its watched kinds.
_KINDS = {
    "": ("v1", {"nodes": "Node", "pods": "Pod", "events": "Event", "namespaces": "Namespace"}),
    "apiextensions.k8s.io": ("v1", {"customresourcedefinitions": "CustomResourceDefinition"}),
    "nodedevice.io": ("v1alpha1", {"nodedevices": "NodeDevice", "poddevices": "PodDevice"}),
    "coordination.k8s.io": ("v1", {"leases": "Lease"}),
}
_NAMESPACED = ("pods", "events", "leases", "poddevices")
_PATH = re.compile(
    r"(?P<base>/api/v1|/apis/[^/]+/[^/]+)(/namespaces/(?P<namespace>[^/]+))?/(?P<plural>[^/]+)(/(?P<name>[^/]+))?(/(?P<part>\w+))?"
)


class ApiServer:
    """url: its address. objects: by (base path, plural), then by (namespace, name)."""

    def __init__(self) -> None:
        self.url = ""
        self.on_write: Callable[[str, str], None] = lambda _verb, _path: None
        self.objects: dict[tuple[str, str], dict[tuple[str, str], Json]] = {}
        self._version = 1
        self._watchers: list[tuple[tuple[str, str], Json, asyncio.Queue[bytes]]] = []

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["ApiServer"]:
        app = aiohttp.web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = aiohttp.web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await aiohttp.web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = "http://{}:{}".format(*runner.addresses[0][:2])
        try:
            yield self
        finally:
            await runner.cleanup()

    def kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig for this server."""
        cluster = {"name": "local", "cluster": {"server": self.url}}
        context = {"name": "local", "context": {"cluster": "local", "user": "admin"}}
        user = {"name": "admin", "user": {"token": "any"}}
        found = {"clusters": [cluster], "contexts": [context], "users": [user], "current-context": "local"}
        path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **found}))
        return path

    def put(self, collection: str, found: Json) -> Json:
        """Create or replace an object, as another client would."""
        match = _PATH.fullmatch(collection)
        assert match is not None
        return self._store((match["base"], match["plural"]), found)

    def _store(self, kind: tuple[str, str], found: Json) -> Json:
        self._version += 1
        metadata = found.setdefault("metadata", {})
        key = (metadata.get("namespace", ""), metadata["name"])
        event = "MODIFIED" if key in self.objects.setdefault(kind, {}) else "ADDED"
        metadata.setdefault("uid", str(uuid.uuid4()))
        metadata["resourceVersion"] = str(self._version)
        self.objects[kind][key] = found
        self._publish(kind, event, found)
        return found

    def _publish(self, kind: tuple[str, str], event: str, found: Json) -> None:
        line = json.dumps({"type": event, "object": found}).encode() + b"\n"
        for watched, query, queue in self._watchers:
            if watched == kind and _selects(query, found):
                queue.put_nowait(line)

    async def _handle(self, request: aiohttp.web.Request) -> aiohttp.web.StreamResponse:
        discovered = _discovery(request.path)
        if discovered is not None:
            return aiohttp.web.json_response(discovered)
        match = _PATH.fullmatch(request.path)
        if match is None:
            return _status(404)
        if request.method != "GET":
            self.on_write(request.method, request.path)
            return await self._write(request, match)
        kind = (match["base"], match["plural"])
        if match["name"]:
            found = self.objects.get(kind, {}).get((match["namespace"] or "", match["name"]))
            return aiohttp.web.json_response(found) if found is not None else _status(404)
        query = dict(request.query)
        if query.get("watch", "").lower() in ("1", "true"):
            return await self._watch(request, kind, query)
        items = [found for found in self.objects.get(kind, {}).values() if _selects(query, found)]
        listed = {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": str(self._version)}}
        return aiohttp.web.json_response({**listed, "items": items})

    async def _watch(
        self, request: aiohttp.web.Request, kind: tuple[str, str], query: Json
    ) -> aiohttp.web.StreamResponse:
        response = aiohttp.web.StreamResponse(headers={"Content-Type": "application/json"})
        watcher = (kind, query, asyncio.Queue[bytes]())
        self._watchers.append(watcher)
        since = int(query.get("resourceVersion") or 0)
        for found in self.objects.get(kind, {}).values():
            # changes between the list and this watch
            if int(found["metadata"]["resourceVersion"]) > since and _selects(query, found):
                watcher[2].put_nowait(json.dumps({"type": "MODIFIED", "object": found}).encode() + b"\n")
        try:
            await response.prepare(request)
            while True:
                await response.write(await watcher[2].get())
        finally:
            self._watchers.remove(watcher)

    async def _write(self, request: aiohttp.web.Request, match: re.Match[str]) -> aiohttp.web.Response:
        kind, namespace, name = (match["base"], match["plural"]), match["namespace"] or "", match["name"] or ""
        body = yaml.safe_load(await request.read())
        name = name or body["metadata"].get("name") or f"{body['metadata']['generateName']}{self._version}"
        objects = self.objects.setdefault(kind, {})
        stored = objects.get((namespace, name))
        if request.method == "DELETE":
            gone = objects.pop((namespace, name), None)
            if gone is not None:
                self._publish(kind, "DELETED", gone)
            return aiohttp.web.json_response(gone or {}) if gone is not None else _status(404)
        if request.method == "PATCH" and "apply" in request.content_type:
            if stored is None and match["part"]:
                return _status(404)
            body["metadata"].pop("resourceVersion", None)
            body = _applied(stored or {}, body, request.query["fieldManager"])
        elif request.method == "PATCH":
            body = _merged(stored or {}, body)
        body["metadata"] |= {"name": name, **({"namespace": namespace} if namespace else {})}
        if stored is not None:
            body["metadata"]["uid"] = stored["metadata"]["uid"]
        return aiohttp.web.json_response(self._store(kind, body))


def _applied(stored: Json, body: Json, manager: str) -> Json:
    """stored with body applied by that manager; its earlier fields that are not in body are removed."""
    others, before = [], {}
    for entry in stored.get("metadata", {}).get("managedFields", ()):
        if entry["manager"] == manager and ("status" in body) == bool(entry.get("subresource")):
            before = entry["fieldsV1"]
        else:
            others.append(entry)
    content = {key: value for key, value in body.items() if key not in ("apiVersion", "kind", "metadata")}
    entry = {"manager": manager, "operation": "Apply", "apiVersion": body["apiVersion"], "fieldsType": "FieldsV1"}
    entry |= {"fieldsV1": _fields(content)} | ({"subresource": "status"} if "status" in body else {})
    found = _merged(_without(stored, before, content), body)
    found["metadata"]["managedFields"] = [*others, entry]
    return found


def _fields(content: Json) -> Json:
    return {f"f:{key}": _fields(value) if isinstance(value, dict) else {} for key, value in content.items()}


def _without(stored: Json, fields: Json, content: Json) -> Json:
    """stored less the leaves that `fields` names and `content` does not have."""
    found = {}
    for key, value in stored.items():
        owned = fields.get(f"f:{key}")
        if isinstance(value, dict) and owned:
            found[key] = _without(value, owned, content.get(key) or {})
        elif owned is None or key in content or isinstance(value, list):
            found[key] = value
    return found


def _merged(stored: Json, patch: Json) -> Json:
    found = dict(stored)
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        elif isinstance(value, dict):
            found[key] = _merged(found.get(key) or {}, value)
        elif key == "conditions":
            found[key] = list({c["type"]: c for c in (*found.get(key, ()), *value)}.values())
        else:
            found[key] = value
    return found


def _selects(query: Json, found: Json) -> bool:
    """Whether the object matches the query's field selector; labels are ignored."""
    for term in filter(None, query.get("fieldSelector", "").split(",")):
        path, _, wanted = term.partition("=")
        value: Any = found
        for key in path.split("."):
            value = value.get(key, {}) if isinstance(value, dict) else {}
        if value != wanted.removeprefix("="):
            return False
    return True


def _discovery(path: str) -> Json | None:
    if path == "/version":
        return {"major": "1", "minor": "37", "gitVersion": "v1.37.0"}
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    if path == "/apis":
        return {"kind": "APIGroupList", "groups": [_group(*found) for found in _KINDS.items() if found[0]]}
    for group, (version, kinds) in _KINDS.items():
        where = f"/apis/{group}/{version}" if group else "/api/v1"
        if path == where:
            resources = list(_resources(kinds))
            return {"kind": "APIResourceList", "groupVersion": where.split("/", 2)[-1], "resources": resources}
    return None


def _group(name: str, found: tuple[str, dict[str, str]]) -> Json:
    version = {"groupVersion": f"{name}/{found[0]}", "version": found[0]}
    return {"name": name, "versions": [version], "preferredVersion": version}


def _resources(kinds: dict[str, str]) -> Iterator[Json]:
    verbs = ["create", "delete", "get", "list", "patch", "update", "watch"]
    for plural, kind in kinds.items():
        found = {"name": plural, "singularName": kind.lower(), "kind": kind, "namespaced": plural in _NAMESPACED}
        yield {**found, "verbs": verbs}
        yield {**found, "name": f"{plural}/status", "verbs": ["get", "patch", "update"]}


def _status(code: int) -> aiohttp.web.Response:
    body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code}
    return aiohttp.web.json_response(body, status=code)
