"""Objects in an API server, for tests, demos and benchmarks, by the `kubernetes` package's dynamic client.

    node = client.get(Node, "node-a")
    client.patch(Node.Status, "node-a", {"status": {"capacity": {"example.com/gpu": "1"}}})

An object is a dictionary as the API has it, with attributes: missing fields read as None, and a time is a datetime.
"""

import asyncio
import json
import re
import threading
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, Self

from kubernetes.client import ApiException
from kubernetes.dynamic import DynamicClient, Resource
from nodedevice_api import names
from nodedevice_operator.kube import credentials
from nodedevice_operator.kube.typed import typed_client
from urllib3.exceptions import HTTPError

# errors of a request or a watch without a response
NO_ANSWER: Final = (HTTPError, OSError)
# Deleting many pods at once, or an object of the maximum size, takes long on a busy machine.
_SECONDS: Final = 60.0
_TIMES: Final = ("Time", "Timestamp", "startedAt", "finishedAt")
# options with longer names in the API
_LONG: Final = {"fields": "field_selector", "labels": "label_selector", "grace_period": "grace_period_seconds"}


class PatchType(StrEnum):
    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


class Object(dict[str, Any]):
    """An object of the API, or a part of one. Fields with the value None are left out."""

    Status: ClassVar[type["Object"]]
    resource: ClassVar[Resource]
    # of a subresource
    part: ClassVar[str] = ""
    type_meta: ClassVar[Mapping[str, str]] = {}

    def __init__(self, /, **fields: Any) -> None:
        super().__init__({name: _with_attributes(value) for name, value in fields.items() if value is not None})

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        return cls(**content)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as the API has them."""
        plain: dict[str, Any] = _plain(self)
        return plain

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = self.get(name)
        return datetime.fromisoformat(value) if isinstance(value, str) and name.endswith(_TIMES) else value

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = _with_attributes(value)


class Listed(list[Any]):
    """Objects of a list, at that version."""

    def __init__(self, version: str, objects: Iterable[Object]) -> None:
        super().__init__(objects)
        self.resourceVersion = version


class ApiError(Exception):
    """A response other than 2xx. status: the Status in it."""

    def __init__(self, status: Object) -> None:
        super().__init__(status.message)
        self.status = status


def _plain(value: Any) -> Any:
    # microseconds have six digits
    return json.loads(json.dumps(value, default=lambda moment: moment.isoformat(timespec="microseconds")))


def _with_attributes(value: Any) -> Any:
    if isinstance(value, Mapping) and not isinstance(value, Object):
        made = Object()
        made.update({key: _with_attributes(each) for key, each in value.items()})
        return made
    return [_with_attributes(each) for each in value] if isinstance(value, list) else value


def kind(name: str, group_version: str = "v1", *, is_namespaced: bool = True) -> type[Object]:
    """A kind of objects; Status is its subresource."""
    plural = re.sub("ys$", "ies", re.sub("ss$", "sse", name.lower()) + "s")
    group, _, version = group_version.rpartition("/")
    resource = Resource("apis" if group else "api", group, version, name, is_namespaced, name=plural)
    made = _part(Object, name, "", group_version, resource=resource)
    made.Status = _part(made, name, "/status", group_version)
    return made


def _part(of: type[Object], name: str, path: str, group_version: str, **more: Any) -> type[Object]:
    return type(name, (of,), {"part": path, "type_meta": {"apiVersion": group_version, "kind": name}, **more})


_cluster_kind = partial(kind, is_namespaced=False)
_RBAC: Final = "rbac.authorization.k8s.io/v1"
_DRA: Final = "resource.k8s.io/v1"
ClusterRole = _cluster_kind("ClusterRole", _RBAC)
ClusterRoleBinding = _cluster_kind("ClusterRoleBinding", _RBAC)
ConfigMap = kind("ConfigMap")
CustomResourceDefinition = _cluster_kind("CustomResourceDefinition", "apiextensions.k8s.io/v1")
Deployment = kind("Deployment", "apps/v1")
Event = kind("Event")
Job = kind("Job", "batch/v1")
Lease = kind("Lease", "coordination.k8s.io/v1")
MutatingAdmissionPolicy = _cluster_kind("MutatingAdmissionPolicy", "admissionregistration.k8s.io/v1")
Namespace = _cluster_kind("Namespace")
Node = _cluster_kind("Node")
NodeDevice = _cluster_kind(names.NODE_DEVICE, names.API_VERSION)
NodeDeviceConfig = _cluster_kind(names.NODE_DEVICE_CONFIG, names.API_VERSION)
Pod = kind("Pod")
PodBinding = _part(Pod, "Binding", "/binding", "v1")
PodDevice = kind(names.POD_DEVICE, names.API_VERSION)
PriorityClass = _cluster_kind("PriorityClass", "scheduling.k8s.io/v1")
ResourceClaim = kind("ResourceClaim", _DRA)
ResourceSlice = _cluster_kind("ResourceSlice", _DRA)
Secret = kind("Secret")
SelfSubjectRulesReview = _cluster_kind("SelfSubjectRulesReview", "authorization.k8s.io/v1")
ServiceAccount = kind("ServiceAccount")
ServiceAccountToken = _part(ServiceAccount, "TokenRequest", "/token", "authentication.k8s.io/v1")
KINDS: Final = {of.type_meta["kind"]: of for of in (ClusterRole, ClusterRoleBinding, ServiceAccount)}


class Client:
    """Use it as a context manager, or call close(). Options of requests have the API's names in Python's spelling.

    namespace: by default the kubeconfig's, if request and object name none; `*`: all. Each call raises ApiError, or
    one of NO_ANSWER.
    """

    def __init__(self, login: credentials.Credentials, field_manager: str | None = None) -> None:
        self._dynamic = DynamicClient(typed_client(login), discoverer=lambda *_: None)
        self._namespace = login.settings.namespace or "default"
        self._field_manager = field_manager
        self._watches: set[Any] = set()
        self._is_closed = False

    def get(self, of: type[Object], name: str, namespace: str | None = None) -> Any:
        return of.from_dict(json.loads(self._send("GET", self._path(of, name, namespace)).data))

    def list(self, of: type[Object], namespace: str | None = None, **options: Any) -> "Listed":
        found = json.loads(self._send("GET", self._path(of, None, namespace), **options).data)
        return Listed(found["metadata"]["resourceVersion"], map(of.from_dict, found["items"]))

    def create(self, made: Object, name: str | None = None, namespace: str | None = None, **options: Any) -> Any:
        """name: of the object that it is a part of."""
        return self._write("POST", type(made), name, namespace, made, None, options)

    def replace(self, made: Object, name: str | None = None, namespace: str | None = None, **options: Any) -> Any:
        return self._write("PUT", type(made), name or made["metadata"]["name"], namespace, made, None, options)

    def apply(self, made: Object, name: str | None = None, namespace: str | None = None, **options: Any) -> Any:
        return self.patch(type(made), name or made["metadata"]["name"], made, namespace, PatchType.APPLY, **options)

    def patch(
        self,
        of: type[Object],
        name: str,
        change: Any,
        namespace: str | None = None,
        patch_type: PatchType = PatchType.STRATEGIC,
        **options: Any,
    ) -> Any:
        return self._write("PATCH", of, name, namespace, change, patch_type, options)

    def delete(self, of: type[Object], name: str, namespace: str | None = None, **options: Any) -> None:
        self._send("DELETE", self._path(of, name, namespace), **options).drain_conn()

    def deletecollection(self, of: type[Object], namespace: str | None = None, **options: Any) -> None:
        self._send("DELETE", self._path(of, None, namespace), **options).drain_conn()

    def watch(self, of: type[Object], namespace: str | None = None, **options: Any) -> Iterator[tuple[str, Any]]:
        """Type and object of each event, until the client is closed; reopened if the API server ends it."""
        while not self._is_closed:
            response = self._send("GET", self._path(of, None, namespace), watch=True, **options)
            self._watches.add(response)
            for line in response:
                if not line.endswith(b"\n"):
                    # cut
                    break
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise ApiError(_with_attributes(event["object"]))
                found = of.from_dict(event["object"])
                options["resource_version"] = found.metadata.resourceVersion
                yield event["type"], found
            self._watches.discard(response)

    def close(self) -> None:
        """Ends its watches."""
        self._is_closed = True
        for response in list(self._watches):
            with suppress(*NO_ANSWER, RuntimeError, AttributeError):
                response.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _path(self, of: type[Object], name: str | None, namespace: str | None) -> str:
        where = namespace or self._namespace
        return f"{of.resource.path(name, None if where == '*' else where)}{of.part}"

    def _write(
        self,
        verb: str,
        of: type[Object],
        name: str | None,
        namespace: str | None,
        content: Any,
        patch_type: PatchType | None,
        options: dict[str, Any],
    ) -> Any:
        if isinstance(content, Object):
            namespace = namespace or content.get("metadata", {}).get("namespace")
            content = {**of.type_meta, **_plain(content)}
        options.setdefault("field_manager", self._field_manager)
        path = self._path(of, name, namespace)
        sent = self._send(verb, path, body=content, content_type=patch_type or "application/json", **options)
        return of.from_dict(json.loads(sent.data))

    def _send(self, verb: str, path: str, body: Any = None, content_type: str = "", **options: Any) -> Any:
        seconds = (_SECONDS, None if options.get("watch") else _SECONDS)
        given = {"body": body, "content_type": content_type, "_request_timeout": seconds, "serialize": False}
        try:
            return self._dynamic.request(verb, path, query_params=[*_query(options)], **given)
        except ApiException as exc:
            try:
                status = json.loads(exc.body or "")
            except ValueError:
                status = {"code": exc.status, "message": str(exc.body or exc.reason)}
            raise ApiError(_with_attributes(status)) from exc


def _query(options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for option, value in options.items():
        name = re.sub("_(.)", lambda match: match[1].upper(), _LONG.get(option, option))
        if isinstance(value, Mapping):
            yield name, ",".join(f"{key}={each}" for key, each in value.items())
        elif value is not None and value is not False:
            yield name, "All" if name == "dryRun" else "true" if value is True else str(value)


class AsyncClient:
    """The same for an event loop: requests run in threads."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return partial(asyncio.to_thread, getattr(self._client, name))

    async def list(self, of: type[Object], namespace: str | None = None, **options: Any) -> AsyncIterator[Any]:
        for each in await asyncio.to_thread(self._client.list, of, namespace, **options):
            yield each

    async def watch(self, of: type[Object], namespace: str | None = None, **options: Any) -> AsyncIterator[Any]:
        """Like the client's watch, in a thread of its own."""
        loop, events = asyncio.get_running_loop(), asyncio.Queue[Any]()

        def read() -> None:
            with suppress(RuntimeError):  # the loop is closed
                try:
                    for event in self._client.watch(of, namespace, **options):
                        loop.call_soon_threadsafe(events.put_nowait, event)
                except (ApiError, *NO_ANSWER) as exc:
                    loop.call_soon_threadsafe(events.put_nowait, exc)

        threading.Thread(target=read, name=f"watch-{of.__name__}", daemon=True).start()
        while True:
            event = await events.get()
            if isinstance(event, Exception):
                raise event
            yield event


def open_client(kubeconfig: Path, field_manager: str | None = None, token: str = "") -> Client:
    """field_manager: of its writes that name none; by default the API server uses the program's name.

    token: another identity than the kubeconfig's user. Raises CredentialsError.
    """
    login = credentials.load(str(kubeconfig))
    if token:
        own = login.settings._replace(token=token, cert_file="", cert_data="", key_file="", key_data="")
        login = credentials.Credentials(own)
    return Client(login, field_manager)
