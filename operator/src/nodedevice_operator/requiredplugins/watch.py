"""The stored state of the policy and its binding: whether the API server has such objects at all, and their specs.

Each is read and then watched by its name, the only one that RBAC allows, so that a foreign change or deletion shows at once. The
controller stores its own writes here. Discovery is repeated on an API server without such policies: it may be upgraded.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from enum import Enum
from typing import Any, Final

from nodedevice_api import names
from nodedevice_common.pacing import Backoff
from nodedevice_kube.api_errors import ApiError, NotFound, Unauthorized, Unavailable, Unreachable, WatchInterrupted
from nodedevice_kube.paths import APPLY, JSON_PATCH
from nodedevice_kube.retries import Retries

from nodedevice_operator.kube.client import Client
from nodedevice_operator.kube.decode import decode
from nodedevice_operator.kube.requests import Requests
from nodedevice_operator.kube.retrying import retrying
from nodedevice_operator.objects.meta import ListSchema, RawWatchEvent, Schema
from nodedevice_operator.requiredplugins.policy import API_VERSION, BINDINGS, NAME, POLICIES, Spec, body

log = logging.getLogger(__name__)

REMEDY: Final = {"remedy": "set required_plugins of the runtime's default_validator, as docs/install.md shows"}
PERMISSIONS: Final = {"remedy": "see requiredPlugins in docs/security.md"}

_DISCOVERY_SECONDS: Final = 300.0
_FIRST_DELAY_SECONDS: Final = 0.5
_LONGEST_DELAY_SECONDS: Final = 30.0
# the resource name of discovery requests
_DISCOVERY: Final = "apis"
_ROOT: Final = f"/apis/{API_VERSION}"
_BY_NAME: Final = f"metadata.name={NAME}"
# Shorter than the 5 minutes after which some load balancers drop a silent connection.
_WATCH_SECONDS: Final = 240


class _PolicyObject(Schema):
    spec: dict[str, Any] = {}


class RequiredPluginsApi(Requests):
    """Requests about the two objects. `kind` is the plural everywhere. instance: as in the settings."""

    def __init__(self, client: Client, instance: str = "") -> None:
        super().__init__(client)
        self._instance = instance

    async def served(self) -> frozenset[str]:
        """Plurals that the API server serves in the group and version of these objects. Raises NotFound if it serves neither."""
        return await self._served(_ROOT)

    async def read(self, kind: str) -> tuple[Spec | None, str]:
        """The object's spec (None if it does not exist), and the version to watch from."""
        data = await self._client.request("GET", kind, f"{_ROOT}/{kind}", query={"fieldSelector": _BY_NAME})
        page = decode("GET", kind, data, ListSchema[_PolicyObject])
        return (page.items[0].spec if page.items else None), page.metadata.resource_version

    async def apply(self, kind: str, spec: Spec) -> Spec:
        """Creates or updates it by server-side apply, which keeps others' list entries; returns its spec after the write."""
        return await self._patch(kind, body(kind, spec, self._instance), APPLY, force="true")

    async def replace(self, kind: str, spec: Spec) -> Spec:
        """Replace the whole spec; return it after the write. Raises NotFound."""
        return await self._patch(kind, [{"op": "replace", "path": "/spec", "value": dict(spec)}], JSON_PATCH)

    async def _patch(self, kind: str, patch: Any, content_type: str, **query: str) -> Spec:
        data = await self._client.request(
            "PATCH",
            kind,
            f"{_ROOT}/{kind}/{NAME}",
            query={"fieldManager": names.OPERATOR_FIELD_MANAGER, **query},
            body=patch,
            content_type=content_type,
        )
        return decode("PATCH", kind, data, _PolicyObject).spec

    async def exists(self, kind: str) -> bool:
        try:
            await self._client.request("GET", kind, f"{_ROOT}/{kind}/{NAME}")
        except NotFound:
            return False
        return True

    async def delete(self, kind: str) -> None:
        """Raises NotFound."""
        await self._client.request("DELETE", kind, f"{_ROOT}/{kind}/{NAME}")

    async def follow(self, kind: str, version: str) -> AsyncIterator[Spec | None]:
        """Its spec at each change, None when it is deleted. Ends now and then, or raises ApiError; then read again."""
        query: dict[str, str | int] = {"fieldSelector": _BY_NAME, "resourceVersion": version}
        query["timeoutSeconds"] = _WATCH_SECONDS
        async with self._client.watch(kind, f"{_ROOT}/{kind}", query) as lines:
            async for line in lines:
                event = decode("watch", kind, line, RawWatchEvent)
                if event.type == "ERROR":
                    return
                if event.type == "BOOKMARK":
                    continue
                spec = decode("watch", kind, event.object, _PolicyObject).spec
                yield None if event.type == "DELETED" else spec


class PolicyState(Enum):
    UNKNOWN = "unknown"
    KEPT = "kept"
    NOT_SERVED = "not served"
    OFF = "off"


class PolicyWatch:
    """changed: called when an object was read. upgraded: when discovery finds no such policies, and when it does later."""

    def __init__(
        self, api: RequiredPluginsApi, changed: Callable[[], None], upgraded: Callable[[], None], *, is_on: bool
    ) -> None:
        self._api = api
        self._changed = changed
        self._upgraded = upgraded
        self.state = PolicyState.UNKNOWN if is_on else PolicyState.OFF
        # as last read or written; one that was never read is not in it
        self.specs: dict[str, Spec | None] = {}
        self._failing: set[str] = set()

    @property
    def is_complete(self) -> bool:
        return self.specs.keys() == {POLICIES, BINDINGS}

    async def watch(self, kind: str) -> None:
        """Keep the stored state of that object (its plural) current, for ever."""
        backoff = Backoff(2 * _FIRST_DELAY_SECONDS, _LONGEST_DELAY_SECONDS)
        while True:
            if not await self._is_served():
                await asyncio.sleep(_DISCOVERY_SECONDS)
                continue
            seconds = _FIRST_DELAY_SECONDS
            try:
                version = await self._read(kind)
                with contextlib.suppress(WatchInterrupted):  # it was open, as one that ends
                    async for spec in self._api.follow(kind, version):
                        self._take(kind, spec)
                backoff.reset()
            except ApiError as error:
                seconds = backoff.next()
                log.debug("policy watch failed", extra={"kind": kind, "error": str(error)})
            await asyncio.sleep(seconds)

    async def _read(self, kind: str) -> str:
        """Reads that object; returns the version to watch from. Raises ApiError, logged once until it works again."""
        try:
            spec, version = await self._api.read(kind)
        except ApiError as error:
            self._read_failed(kind, error, was_read=kind in self.specs)
            raise
        self._read_worked(kind)
        self._take(kind, spec)
        return version

    def _take(self, kind: str, spec: Spec | None) -> None:
        self.specs[kind] = spec
        self._changed()

    async def _is_served(self) -> bool:
        """Whether the API server has such policies; retries until it responds, and logs their absence once."""
        if self.state in (PolicyState.OFF, PolicyState.KEPT):
            return self.state is PolicyState.KEPT
        served = await self._discover()
        before, self.state = self.state, PolicyState.KEPT if served else PolicyState.NOT_SERVED
        if self.state is PolicyState.NOT_SERVED and before is PolicyState.UNKNOWN:
            log.warning(
                "API server has no MutatingAdmissionPolicy v1: pods wait for their node's agent only where the runtime requires it",
                extra=REMEDY,
            )
        if before is not self.state and PolicyState.NOT_SERVED in (before, self.state):
            self._upgraded()
        return served

    async def _discover(self) -> bool:
        # every error: an API server that has just started forbids requests until it has read the roles
        served = await retrying(
            self._served,
            ApiError,
            Retries(_FIRST_DELAY_SECONDS, _LONGEST_DELAY_SECONDS),
            failed=lambda error: self._read_failed(_DISCOVERY, error, was_read=False),
        )
        self._read_worked(_DISCOVERY)
        return served >= {POLICIES, BINDINGS}

    async def _served(self) -> frozenset[str]:
        try:
            return await self._api.served()
        except NotFound:
            return frozenset()

    def _read_failed(self, kind: str, error: ApiError, *, was_read: bool) -> None:
        """Logs it once. was_read: the stored spec still counts. ApiHealth logs other causes, such as rejected credentials."""
        # a 500 is about this one request
        is_away = isinstance(error, Unreachable) or (isinstance(error, Unavailable) and error.status != 500)
        if is_away or isinstance(error, Unauthorized) or kind in self._failing:
            return
        self._failing.add(kind)
        fields: dict[str, Any] = {"kind": kind, "error": str(error), **PERMISSIONS}
        if was_read:
            log.warning("policy cannot be read; foreign changes to it are not undone until it can", extra=fields)
        else:
            log.error("policy cannot be read; resource names are not advertised until it can", extra=fields)

    def _read_worked(self, kind: str) -> None:
        if kind in self._failing:
            self._failing.discard(kind)
            log.info("policy can be read again", extra={"kind": kind})
