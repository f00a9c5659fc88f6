"""The kinds themselves: their CustomResourceDefinitions as this program ships them, and as the API server has them.

Written by server-side apply in Helm's name: it is Helm that has them first, and that refuses to install a chart over definitions
which another field manager has changed since. Decides nothing: which release may replace which is core.releases'.
"""

from importlib.resources import files
from typing import Any, Final
from urllib.parse import quote

import msgspec
import yaml
from nodedevice_api import names

from nodedevice_operator.errors import NotFound
from nodedevice_operator.kube.client import APPLY, Client
from nodedevice_operator.kube.decode import understood
from nodedevice_operator.objects.meta import Schema
from nodedevice_operator.objects.nodedevice import ConditionStatus

FIELD_MANAGER: Final = "helm"
KIND: Final = "customresourcedefinitions"
NAMES: Final = tuple(f"{plural}.{names.GROUP}" for plural in (names.NODE_DEVICES, names.POD_DEVICES))

_PATH: Final = f"/apis/apiextensions.k8s.io/v1/{KIND}"


class _Metadata(Schema):
    name: str = ""
    generation: int = 0
    annotations: dict[str, str] = {}


class _Status(Schema):
    # null until the API server has looked at a new one
    conditions: list[ConditionStatus] | None = None


class Definition(Schema):
    """A CRD as the API server has it."""

    metadata: _Metadata
    status: _Status = msgspec.field(default_factory=_Status)

    @property
    def release(self) -> str:
        """The release that it is of; "" where it does not say."""
        return self.metadata.annotations.get(names.RELEASE_ANNOTATION, "")

    @property
    def is_established(self) -> bool:
        return any(each.type == "Established" and each.status == "True" for each in self.status.conditions or ())

    @property
    def refused_names(self) -> str:
        """Why the API server does not serve its names; "" where it does, or has not looked yet."""
        found = (
            each.message
            for each in self.status.conditions or ()
            if each.type == "NamesAccepted" and each.status == "False"
        )
        return next(found, "")


def shipped() -> list[dict[str, Any]]:
    """The definitions that this program carries, as plain values."""
    folder = files("nodedevice_operator").joinpath("definitions")
    texts = [entry.read_text(encoding="utf-8") for entry in folder.iterdir() if entry.name.endswith(".yaml")]
    return sorted((yaml.safe_load(text) for text in texts), key=lambda each: str(each["metadata"]["name"]))


class Definitions:
    """Requests about them."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def read(self, name: str) -> Definition | None:
        """None where there is none of that name."""
        try:
            data = await self._client.request("GET", KIND, _path(name))
        except NotFound:
            return None
        return understood("GET", KIND, data, Definition)

    async def apply(self, body: dict[str, Any]) -> Definition:
        """Make or change it; as it is then."""
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        path = _path(body["metadata"]["name"])
        data = await self._client.request("PATCH", KIND, path, query=query, body=body, content_type=APPLY)
        return understood("PATCH", KIND, data, Definition)

    async def delete(self, name: str) -> bool:
        """Have it deleted, and with it every object of its kind; whether it was there."""
        try:
            await self._client.request("DELETE", KIND, _path(name))
        except NotFound:
            return False
        return True


def _path(name: str) -> str:
    return f"{_PATH}/{quote(name, safe='')}"
