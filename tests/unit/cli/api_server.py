"""An API server that tests play: a few objects, lists as objects and as rows, JSON patches, and whatever goes wrong.

It is asked over a real connection on the loopback, so that what is tested is what people run.
"""

import copy
import json
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

import yaml

from tests.unit.sources import ROOT

OURS: Final = "/apis/nodedevice.io/v1alpha1"
PODS: Final = "/api/v1/pods"
NODES: Final = "/api/v1/nodes"
LEASES: Final = "/apis/coordination.k8s.io/v1/leases"
CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
DAEMON_SETS: Final = "/apis/apps/v1/daemonsets"
DEPLOYMENTS: Final = "/apis/apps/v1/deployments"
EVENTS: Final = "/api/v1/events"
_NAMESPACES: Final = "/namespaces/"
Object = dict[str, Any]


@dataclass(frozen=True)
class Request:
    """path: without its query; headers: names in lower case."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Any = None


@dataclass(frozen=True)
class Answer:
    """hold: the connection stays silent until the client gives up; short: the body ends before it is whole.

    ends: the connection ends after it, unannounced.
    """

    status: int = 200
    body: bytes = b"{}"
    headers: Mapping[str, str] = field(default_factory=dict)
    hold: bool = False
    short: bool = False
    ends: bool = False


Fault = Callable[[Request], Answer | None]


def status(code: int, message: str = "", **details: str) -> Answer:
    """As the API server writes a failure."""
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": message,
        "code": code,
        "details": details,
    }
    return Answer(code, json.dumps(body).encode())


def columns_of(kind: str) -> list[tuple[str, str]]:
    """Names and paths of the columns that the CRD prints, and the name's own."""
    crd = yaml.safe_load((ROOT / f"crds/{kind}.yaml").read_text(encoding="utf-8"))
    found = [(each["name"], each["jsonPath"]) for each in crd["spec"]["versions"][0]["additionalPrinterColumns"]]
    return [("Name", ".metadata.name"), *found]


@dataclass
class FakeApiServer:
    """objects: by the path of their kind over all namespaces. fault: asked first. has_selectors: as newer CRDs have.

    date: of each answer, where it is not that of the clock.
    """

    objects: dict[str, list[Object]] = field(default_factory=dict)
    fault: Fault = lambda _: None
    user: str = "alice"
    has_selectors: bool = True
    omitted_columns: frozenset[str] = frozenset()
    page: int = 500
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    date: str = ""
    address: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, request: Request) -> Answer:
        with self._lock:
            self.requests.append(request)
            return self.fault(request) or self._answer(request)

    def _answer(self, request: Request) -> Answer:
        if request.path.endswith("/selfsubjectreviews"):
            return _found({"kind": "SelfSubjectReview", "status": {"userInfo": {"username": self.user}}})
        if request.path.endswith("/selfsubjectaccessreviews"):
            return _found({"kind": "SelfSubjectAccessReview", "status": {"allowed": True}})
        kind, namespace, name = self._place(request.path)
        if kind not in self.objects:
            return Answer(404, b"404 page not found\n")
        if not name:
            return self._list(request, kind, namespace)
        for each in self.objects[kind]:
            if each["metadata"]["name"] == name and namespace in ("", each["metadata"].get("namespace", "")):
                return self._patched(request, each) if request.method == "PATCH" else _found(each)
        plural = kind.rpartition("/")[2]
        return status(404, f'{plural} "{name}" not found', name=name, kind=plural)

    def _place(self, path: str) -> tuple[str, str, str]:
        """Path of the kind over all namespaces, namespace, name."""
        namespace = ""
        if _NAMESPACES in path:
            before, _, rest = path.partition(_NAMESPACES)
            namespace, _, rest = rest.partition("/")
            path = f"{before}/{rest}"
        if path in self.objects:
            return path, unquote(namespace), ""
        kind, _, name = path.rpartition("/")
        return (kind, unquote(namespace), unquote(name)) if kind in self.objects else (path, namespace, "")

    def _list(self, request: Request, kind: str, namespace: str) -> Answer:
        found = [each for each in self.objects[kind] if namespace in ("", each["metadata"].get("namespace", ""))]
        for wanted in filter(None, request.query.get("labelSelector", "").split(",")):
            name, _, value = wanted.partition("=")
            # of `in (…)` nothing is compared
            found = [each for each in found if not value or each["metadata"].get("labels", {}).get(name) == value]
        selector = request.query.get("fieldSelector", "")
        if selector and kind.startswith(OURS) and not self.has_selectors:
            return status(400, f"field label not supported: {selector}")
        for wanted in filter(None, selector.split(",")):
            path, _, value = wanted.partition("=")
            # "" where there is none
            found = [each for each in found if (_at(each, path.split(".")) or "") == value]
        start = int(request.query.get("continue", "0"))
        end = start + min(self.page, int(request.query.get("limit", "500")))
        meta = {"continue": str(end)} if end < len(found) else {}
        if "as=Table" in request.headers.get("accept", ""):
            return _found(self._table(kind.rpartition("/")[2], found[start:end], meta))
        return _found({"kind": "List", "metadata": meta, "items": found[start:end]})

    def _table(self, plural: str, found: list[Object], meta: Object) -> Object:
        columns = [each for each in columns_of(plural) if each[0] not in self.omitted_columns]
        rows = [{"cells": [_printed(each, path) for _, path in columns], "object": None} for each in found]
        definitions = [{"name": name, "type": "string"} for name, _ in columns]
        return {"kind": "Table", "metadata": meta, "columnDefinitions": definitions, "rows": rows}

    def _patched(self, request: Request, found: Object) -> Answer:
        changed = copy.deepcopy(found)
        for each in request.body:
            if each["path"] == "/metadata/resourceVersion":
                if each["value"] != found["metadata"]["resourceVersion"]:
                    return status(409, "the object has been modified", name=found["metadata"]["name"])
                continue
            _apply(changed, each)
        changed["metadata"]["resourceVersion"] = str(int(found["metadata"]["resourceVersion"]) + 1)
        found.clear()
        found.update(changed)
        return _found(found)


def _found(content: Object) -> Answer:
    return Answer(200, json.dumps(content).encode())


def _at(found: Any, path: list[str]) -> Any:
    for key in path:
        found = found.get(key, {}) if isinstance(found, dict) else {}
    return found


def _printed(found: Object, path: str) -> Any:
    """What a column shows; null where the object lacks it."""
    if "conditions" in path:
        key, wanted, what = path.partition("@.")[2].partition("=")[0], path.split('"')[1], path.rpartition(".")[2]
        conditions = _at(found, ["status", "conditions"]) or []
        return next((each[what] for each in conditions if each[key] == wanted), None)
    value = _at(found, path.strip(".").split("."))
    return None if value == {} else value


def _apply(found: Object, operation: Mapping[str, Any]) -> None:
    *parents, last = operation["path"].strip("/").split("/")
    at: Any = found
    for key in parents:
        at = at[int(key)] if isinstance(at, list) else at[key]
    if isinstance(at, list):
        if operation["op"] == "add":
            at.insert(len(at) if last == "-" else int(last), operation["value"])
        elif operation["op"] == "replace":
            at[int(last)] = operation["value"]
        else:
            del at[int(last)]
    else:
        at[last] = operation["value"]


@contextmanager
def serving(server: FakeApiServer, tls: ssl.SSLContext | None = None) -> Iterator[FakeApiServer]:
    """While it is open it answers at `server.address`."""
    ended = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 60

        def setup(self) -> None:
            super().setup()
            server.connections += 1

        def date_time_string(self, timestamp: float | None = None) -> str:
            return server.date or super().date_time_string(timestamp)

        def _handle(self) -> None:
            parts = urlsplit(self.path)
            length = int(self.headers.get("Content-Length", "0"))
            body = json.loads(self.rfile.read(length)) if length else None
            headers = {name.lower(): value for name, value in self.headers.items()}
            query = dict(parse_qsl(parts.query, keep_blank_values=True))
            request = Request(self.command, parts.path, query, headers, body)
            answer = server.answer(request)
            if answer.hold:
                # the client closes its connection, or the test ends
                self.connection.settimeout(None)
                while not ended.is_set() and self.connection.recv(1):
                    pass
                self.close_connection = True
                return
            self.send_response(answer.status)
            self.send_header("Content-Length", str(len(answer.body) + answer.short))
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer.body)
            self.close_connection = answer.short or answer.ends

        do_GET = do_POST = do_PATCH = _handle

        def log_message(self, *_: Any) -> None:
            """Nobody reads it."""

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listening.daemon_threads = True
    listening.handle_error = lambda *_: None  # type: ignore[method-assign]
    if tls:
        listening.socket = tls.wrap_socket(listening.socket, server_side=True, do_handshake_on_connect=False)
    server.address = f"{'https' if tls else 'http'}://127.0.0.1:{listening.server_port}"
    thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        ended.set()
        listening.shutdown()
        listening.server_close()


def kubeconfig(folder: Path, server: str, cluster: Object | None = None, **user: Any) -> Path:
    """A file with one context, `test`, for that server, or that entry of a cluster."""
    content = {
        "current-context": "test",
        "clusters": [{"name": "c", "cluster": cluster or {"server": server}}],
        "contexts": [{"name": "test", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": user}],
    }
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    return file
