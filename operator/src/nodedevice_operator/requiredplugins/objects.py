"""Every request about the policy that core.required_plugins describes, and about its binding: read, written and watched by name.

Specs are handed over as they are: what they mean is the core's. Rights are for this one name; only making it cannot be limited so.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import aiohttp
import msgspec
from nodedevice_api import names

from nodedevice_operator.errors import CredentialsError, Forbidden, NotFound, Unauthorized, Unavailable, Unreachable
from nodedevice_operator.kube.client import APPLY, Client
from nodedevice_operator.kube.credentials import Credentials
from nodedevice_operator.kube.decode import understood
from nodedevice_operator.objects.meta import ListMetadata, ResourceList, Schema
from nodedevice_operator.requiredplugins.policy import API_VERSION, NAME, Spec, body

_ROOT: Final = f"/apis/{API_VERSION}"
_JSON_PATCH: Final = "application/json-patch+json"
# Shorter than the 5 minutes after which some load balancers drop a silent connection.
_WATCH_SECONDS: Final = 240
_PATIENCE_SECONDS: Final = 30.0


class PolicyObjects:
    """The two objects. `kind` is the plural everywhere."""

    def __init__(self, client: Client, credentials: Credentials) -> None:
        self._client = client
        self._credentials = credentials

    async def served(self) -> frozenset[str]:
        """Plurals that the API server serves in the group and version of these objects. Raises NotFound where it knows neither."""
        data = await self._client.request("GET", "apis", _ROOT)
        return frozenset(found.name for found in understood("GET", "apis", data, ResourceList).resources)

    async def read(self, kind: str) -> tuple[Spec | None, str]:
        """Spec of the object, None where it is not there, and the version from which a watch goes on."""
        data = await self._client.request("GET", kind, f"{_ROOT}/{kind}", query={"fieldSelector": _BY_NAME})
        page = understood("GET", kind, data, _List)
        return (page.items[0].spec if page.items else None), page.metadata.resource_version

    async def apply(self, kind: str, spec: Spec) -> Spec:
        """Make or change the object by server-side apply; its spec as it is then. What others added to its lists stays."""
        query = {"fieldManager": names.OPERATOR_FIELD_MANAGER, "force": "true"}
        data = await self._client.request(
            "PATCH", kind, f"{_ROOT}/{kind}/{NAME}", query=query, body=body(kind, spec), content_type=APPLY
        )
        return understood("PATCH", kind, data, _Object).spec

    async def replace(self, kind: str, spec: Spec) -> Spec:
        """Make the spec that one and nothing else; the spec as it is then. Raises NotFound."""
        patch = [{"op": "replace", "path": "/spec", "value": dict(spec)}]
        query = {"fieldManager": names.OPERATOR_FIELD_MANAGER}
        data = await self._client.request(
            "PATCH", kind, f"{_ROOT}/{kind}/{NAME}", query=query, body=patch, content_type=_JSON_PATCH
        )
        return understood("PATCH", kind, data, _Object).spec

    async def delete(self, kind: str) -> None:
        """Raises NotFound."""
        await self._client.request("DELETE", kind, f"{_ROOT}/{kind}/{NAME}")

    async def follow(self, kind: str, version: str) -> AsyncIterator[Spec | None]:
        """Its spec at each change from that version on, None when it is deleted. Ends now and then.

        Raises ApiError where the watch cannot be had or is cut; after either, read again.
        """
        url = f"{self._credentials.server}{_ROOT}/{kind}"
        query = {"watch": "true", "fieldSelector": _BY_NAME, "resourceVersion": version}
        query["timeoutSeconds"] = str(_WATCH_SECONDS)
        timeout = aiohttp.ClientTimeout(total=_WATCH_SECONDS + _PATIENCE_SECONDS, sock_connect=_PATIENCE_SECONDS)
        try:
            authorization = self._credentials.authorization()
            headers = {"Authorization": authorization} if authorization else {}
            connector = aiohttp.TCPConnector(ssl=self._credentials.ssl_context())
            async with (
                aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
                session.get(url, params=query, headers=headers) as answer,
            ):
                _check(kind, answer.status)
                async for line in _lines(answer.content):
                    event = understood("watch", kind, line, _Event)
                    if event.type == "ERROR":
                        return
                    spec = understood("watch", kind, event.object, _Object).spec
                    yield None if event.type == "DELETED" else spec
        except (aiohttp.ClientError, TimeoutError, OSError, CredentialsError) as exc:
            raise Unreachable("watch", kind, str(exc) or type(exc).__name__) from exc


_BY_NAME: Final = f"metadata.name={NAME}"


class _Object(Schema):
    spec: dict[str, Any] = {}


class _List(Schema):
    metadata: ListMetadata
    items: list[_Object] = []


class _Event(Schema):
    type: str
    object: msgspec.Raw


def _check(kind: str, status: int) -> None:
    if status in (401, 403):
        raise (Unauthorized if status == 401 else Forbidden)("watch", kind, f"HTTP {status}", status)
    if status == 404:
        raise NotFound("watch", kind, "not served", status)
    if status != 200:
        raise Unavailable("watch", kind, f"HTTP {status}", status)


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Whole lines, however long: a policy of a thousand names is longer than aiohttp's own limit for one."""
    rest = b""
    async for chunk in content.iter_any():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line
        # a chunk that was there already gives no turn to anybody else
        await asyncio.sleep(0)
