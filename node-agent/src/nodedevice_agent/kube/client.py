"""The API server, as far as the agent may use it: its pods, its Node's identity, its own NodeDevices, its Lease.

lightkube does the talking (credentials, TLS, watches); here are slim types for what is read, and its errors become ours.
"""

import logging
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import httpx2
import msgspec
from lightkube import AsyncClient
from lightkube.config import client_adapter
from lightkube.core import resource as res
from lightkube.core.exceptions import ApiError as LightkubeApiError
from lightkube.core.exceptions import ConfigError, NotReadyError
from lightkube.resources.coordination_v1 import Lease
from lightkube.types import PatchType
from nodedevice_api import names

from nodedevice_agent import metrics
from nodedevice_agent.errors import (
    ApiAway,
    ApiError,
    ApiForbidden,
    ApiGone,
    ApiNotFound,
    ApiRefused,
    ApiUnreachable,
)
from nodedevice_agent.kube import kubeconfig as kubeconfigs

log = logging.getLogger(__name__)

REQUEST_SECONDS = 10.0
# A watch ends by itself before this; the server closes it, so that a list begins anew now and then.
WATCH_SECONDS = 300
_LEASE = "Lease"
_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _GONE, _TOO_MANY = 401, 403, 404, 410, 429


class Metadata(msgspec.Struct, omit_defaults=True):
    """Attribute names are the wire's: lightkube reads some of them."""

    name: str = ""
    namespace: str | None = None
    uid: str | None = None
    resourceVersion: str | None = None
    deletionTimestamp: str | None = None
    annotations: dict[str, str] | None = None


class OwnedMetadata(Metadata, omit_defaults=True):
    ownerReferences: list[dict[str, Any]] | None = None


class _Object(msgspec.Struct, omit_defaults=True):
    metadata: Metadata = msgspec.field(default_factory=Metadata)


def _info(group: str, version: str, kind: str, plural: str, *verbs: str, action: str | None = None) -> res.ApiInfo:
    definition = res.ResourceDef(group, version, kind)
    return res.ApiInfo(definition, plural, list(verbs), parent=definition if action else None, action=action)


class Resources(msgspec.Struct):
    limits: dict[str, str | int] | None = None


class KeyRef(msgspec.Struct):
    optional: bool | None = None


class EnvVarSource(msgspec.Struct):
    """Of what a variable may refer to, what may be missing."""

    configMapKeyRef: KeyRef | None = None
    secretKeyRef: KeyRef | None = None
    fileKeyRef: KeyRef | None = None


class EnvVar(msgspec.Struct):
    name: str = ""
    valueFrom: EnvVarSource | None = None


class VolumeMount(msgspec.Struct):
    mountPath: str = ""


class SecurityContext(msgspec.Struct):
    privileged: bool | None = None


class ContainerSpec(msgspec.Struct):
    name: str
    resources: Resources = msgspec.field(default_factory=Resources)
    restartPolicy: str | None = None
    env: list[EnvVar] | None = None
    volumeMounts: list[VolumeMount] | None = None
    securityContext: SecurityContext | None = None


class PodSpec(msgspec.Struct):
    containers: list[ContainerSpec] = []
    initContainers: list[ContainerSpec] | None = None


class RequestMapping(msgspec.Struct):
    containerName: str = ""
    resourceName: str = ""


class ExtendedResourceClaimStatus(msgspec.Struct):
    requestMappings: list[RequestMapping] | None = None


class PodStatus(msgspec.Struct):
    phase: str | None = None
    extendedResourceClaimStatus: ExtendedResourceClaimStatus | None = None


class PodObject(_Object, res.NamespacedResourceG):
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)
    _api_info = _info("", "v1", "Pod", "pods", "global_list", "global_watch")


class NodeObject(_Object, res.GlobalResource):
    _api_info = _info("", "v1", "Node", "nodes", "get")


class NodeDeviceObject(_Object, res.GlobalResource):
    metadata: OwnedMetadata = msgspec.field(default_factory=OwnedMetadata)
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}
    _api_info = _info(
        names.GROUP, names.VERSION, names.NODE_DEVICE, names.NODE_DEVICES, "get", "list", "watch", "patch"
    )


class NodeDeviceStatus(NodeDeviceObject, res.GlobalSubResource):
    _api_info = _info(names.GROUP, names.VERSION, names.NODE_DEVICE, names.NODE_DEVICES, "patch", action="status")


class Cluster:
    """One client for all of the agent's edges. Every method raises ApiError and nothing else."""

    def __init__(self, client: AsyncClient, server: str) -> None:
        self._client = client
        self.server = server
        self._is_away = False

    @classmethod
    def connect(cls, kubeconfig: Path | None) -> Self:
        """From a kubeconfig file, else from the pod's ServiceAccount, $KUBECONFIG or ~/.kube/config. Raises SettingsError."""
        config = kubeconfigs.read(kubeconfig)
        assert config.user is not None
        try:
            verify = client_adapter.verify_cluster(config.cluster, config.user, config.abs_file)
            transport = httpx2.AsyncHTTPTransport(verify=verify, socket_options=_KEEPALIVE, limits=_LIMITS)
            client: AsyncClient = AsyncClient(
                config=config,
                timeout=httpx2.Timeout(REQUEST_SECONDS),
                transport=transport,
                field_manager=names.AGENT_FIELD_MANAGER,
            )
        except (ConfigError, OSError, AttributeError, LookupError, TypeError, ValueError) as exc:
            # what certificates and keys are, the library finds out by tripping over them
            raise kubeconfigs.unusable(config.fname, str(exc)) from exc
        return cls(client, config.cluster.server)

    async def close(self) -> None:
        await self._client.close()

    async def node_uid(self, name: str) -> str:
        """Raises ApiNotFound when there is no such Node."""
        with self._asked(f"reading node {name}"):
            node = await self._client.get(NodeObject, name)
        return node.metadata.uid or ""

    async def node_devices_of(self, node_name: str) -> list[NodeDeviceObject]:
        """All NodeDevices of a node, by field selector: the server looks at every one, so only after a lost checkpoint."""
        with self._asked(f"listing nodedevices of node {node_name}"):
            return [o async for o in self._client.list(NodeDeviceObject, fields={"spec.nodeName": node_name})]

    async def create_node_device(self, node: tuple[str, str], resource_name: str) -> NodeDeviceObject:
        """Make the object, or make sure of it. node: (name, uid) of the owner."""
        name = names.node_device_name(node[0], resource_name)
        owner = {"apiVersion": "v1", "kind": "Node", "name": node[0], "uid": node[1]}
        body = {
            "apiVersion": names.API_VERSION,
            "kind": names.NODE_DEVICE,
            "metadata": {"name": name, "ownerReferences": [owner]},
            "spec": {"nodeName": node[0], "resourceName": resource_name},
        }
        with _counted(names.NODE_DEVICE), self._asked(f"creating nodedevice {name}"):
            return await self._client.patch(NodeDeviceObject, name, body, patch_type=PatchType.APPLY, force=True)

    async def apply_status(self, name: str, status: dict[str, Any]) -> NodeDeviceObject:
        """Apply all that the agent owns of the status. Raises ApiNotFound when the object has to be made first."""
        body = {
            "apiVersion": names.API_VERSION,
            "kind": names.NODE_DEVICE,
            "metadata": {"name": name},
            "status": status,
        }
        with _counted(names.NODE_DEVICE), self._asked(f"writing the status of nodedevice {name}"):
            return await self._client.patch(NodeDeviceStatus, name, body, patch_type=PatchType.APPLY, force=True)

    async def follow(
        self,
        kind: type[Any],
        fields: Mapping[str, str],
        synced: Callable[[list[Any]], Awaitable[None]],
        changed: Callable[[str, Any], Awaitable[None]],
    ) -> None:
        """List, then watch, until something breaks (raises ApiError) or the watch has to begin anew (returns).

        synced: the complete list; changed: (ADDED | MODIFIED | DELETED, object). Namespaced kinds in all namespaces.
        """
        # pods are followed in all namespaces; the other kinds have none
        scope: dict[str, Any] = {"namespace": "*"} if issubclass(kind, res.NamespacedResourceG) else {}
        what = f"watching {kind._api_info.plural}"
        # what the callbacks raise is theirs: only the library is translated
        with self._asked(what):
            listing = self._client.list(kind, fields=dict(fields), **scope)
            items = [item async for item in listing]
        await synced(items)
        with _translated(what):
            watch = aiter(
                self._client.watch(
                    kind,
                    fields=dict(fields),
                    resource_version=listing.resourceVersion,
                    server_timeout=WATCH_SECONDS,
                    **scope,
                )
            )
        while True:
            with self._asked(what):
                found = await anext(watch, None)
            if found is None:
                return
            await changed(*found)

    async def get_lease(self, namespace: str, name: str) -> Lease:
        with self._asked(f"reading lease {namespace}/{name}"):
            return await self._client.get(Lease, name, namespace=namespace)

    async def create_lease(self, lease: Lease) -> Lease:
        with _counted(_LEASE), self._asked("creating the lease"):
            return await self._client.create(lease)

    async def replace_lease(self, lease: Lease) -> Lease:
        """Raises ApiRefused (409) when somebody else wrote it meanwhile."""
        with _counted(_LEASE), self._asked("renewing the lease"):
            return await self._client.replace(lease)

    @contextmanager
    def _asked(self, what: str) -> Iterator[None]:
        """One request or answer. That there is no connection is said here alone, with the address, and when there is one again."""
        try:
            with _translated(what):
                yield
        except ApiAway as exc:
            if not self._is_away:
                extra = {"server": self.server, "error": str(exc)}
                log.warning("api server: connection lost; trying again", extra=extra)
            self._is_away = True
            raise
        except ApiError as exc:
            if exc.status:
                self._answered()
            raise
        self._answered()

    def _answered(self) -> None:
        if self._is_away:
            log.info("api server: connected again", extra={"server": self.server})
        self._is_away = False


@contextmanager
def _counted(kind: str) -> Iterator[None]:
    """One write of that kind; the caller's cancellation is none of its outcomes."""
    try:
        yield
    except ApiError as exc:
        outcome = ApiUnreachable if isinstance(exc, ApiAway) else type(exc)
        metrics.API_WRITES.labels(kind, outcome.__name__).inc()
        raise
    metrics.API_WRITES.labels(kind, "ok").inc()


@contextmanager
def _translated(what: str) -> Iterator[None]:
    try:
        yield
    except LightkubeApiError as exc:
        # an error inside a watch has no response of its own; of a proxy's answer, the body may not say the code
        code = exc.status.code or (exc.response.status_code if exc.response is not None else 0)
        raise _by_status(what, exc.status.message or exc.status.reason or "", code) from exc
    except httpx2.HTTPStatusError as exc:
        raise _by_status(what, exc.response.reason_phrase, exc.response.status_code) from exc
    except (httpx2.NetworkError, httpx2.RemoteProtocolError, httpx2.ConnectTimeout) as exc:
        raise ApiAway(what, str(exc) or type(exc).__name__) from exc
    except httpx2.TimeoutException as exc:
        raise ApiUnreachable(what, f"no answer in {REQUEST_SECONDS:.0f} s") from exc
    except (httpx2.HTTPError, OSError, ConfigError) as exc:
        raise ApiUnreachable(what, str(exc) or type(exc).__name__) from exc
    except (msgspec.MsgspecError, NotReadyError) as exc:
        # NotReadyError: a list without a resource version
        raise ApiUnreachable(what, f"the answer cannot be understood: {exc}") from exc
    except (LookupError, TypeError, ValueError, AttributeError) as exc:
        # the library trips over what a proxy may answer, such as an error without Content-Type
        if isinstance(exc.__context__, httpx2.HTTPStatusError):
            response = exc.__context__.response
            raise _by_status(what, response.reason_phrase, response.status_code) from exc
        raise ApiUnreachable(what, f"the answer cannot be understood: {exc!r:.200}") from exc


def _by_status(what: str, detail: str, status: int) -> ApiError:
    if status in (_UNAUTHORIZED, _FORBIDDEN):
        return ApiForbidden(what, detail, status)
    if status == _NOT_FOUND:
        return ApiNotFound(what, detail, status)
    if status == _GONE:
        return ApiGone(what, detail, status)
    # an apply with a field that the CRD does not know, or too big an object, is answered with 500
    hopeless = ("failed to create typed patch object", "request is too large", "trying to send message larger than max")
    if status >= 500 and not any(text in detail for text in hopeless):
        return ApiUnreachable(what, detail, status)
    if status == _TOO_MANY:
        return ApiUnreachable(what, detail, status)
    return ApiRefused(what, detail, status)


# each resource's watch holds a connection of its own; the library's bound of 100 would starve everything else
_LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=10, keepalive_expiry=90)

# a connection whose other end vanished is noticed within about half a minute
_KEEPALIVE = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
]
