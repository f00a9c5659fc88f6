"""`nodedevice-operator crds apply`: create or update the CRDs of this release. The chart runs it before an upgrade.

Helm itself applies a chart's CRDs at install, whatever release the existing ones are of, and never at upgrade. They are written by
server-side apply in Helm's name: Helm creates them first, and refuses to install a chart over definitions which another field
manager has changed since.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from importlib.resources import files
from typing import Any, Final

import click
import msgspec
import yaml
from nodedevice_api import names

from nodedevice_operator import __version__
from nodedevice_operator.cli import progress as command
from nodedevice_operator.cli.releases import is_older
from nodedevice_operator.errors import Invalid, NotFound, OlderRelease, OperatorError
from nodedevice_operator.kube import credentials
from nodedevice_operator.kube.client import APPLY, Requests, path_segment
from nodedevice_operator.kube.decode import decode
from nodedevice_operator.objects.meta import Schema
from nodedevice_operator.objects.nodedevice import ConditionStatus

FIELD_MANAGER: Final = "helm"
KIND: Final = "customresourcedefinitions"
NAMES: Final = tuple(f"{plural}.{names.GROUP}" for plural in (names.NODE_DEVICES, names.POD_DEVICES))

_PATH: Final = f"/apis/apiextensions.k8s.io/v1/{KIND}"
_SECONDS: Final = 60.0


class _CrdMetadata(Schema):
    name: str = ""
    generation: int = 0
    annotations: dict[str, str] = {}


class _CrdStatus(Schema):
    # null until the API server has processed a new one
    conditions: list[ConditionStatus] | None = None


class Crd(Schema):
    """A CustomResourceDefinition as the API server has it."""

    metadata: _CrdMetadata
    status: _CrdStatus = msgspec.field(default_factory=_CrdStatus)

    @property
    def release(self) -> str:
        """The release in its annotation; "" where there is none."""
        return self.metadata.annotations.get(names.RELEASE_ANNOTATION, "")

    @property
    def is_established(self) -> bool:
        return any(each.type == "Established" and each.status == "True" for each in self.status.conditions or ())

    @property
    def rejected_names(self) -> str:
        """Why the API server does not serve its names; "" where it does, or has not decided yet."""
        found = (
            each.message
            for each in self.status.conditions or ()
            if each.type == "NamesAccepted" and each.status == "False"
        )
        return next(found, "")


def shipped() -> list[dict[str, Any]]:
    """The definitions that this program contains, as plain values."""
    folder = files("nodedevice_operator").joinpath("definitions")
    texts = [entry.read_text(encoding="utf-8") for entry in folder.iterdir() if entry.name.endswith(".yaml")]
    return sorted((yaml.safe_load(text) for text in texts), key=lambda each: str(each["metadata"]["name"]))


class CrdApi(Requests):
    """Requests about CustomResourceDefinitions."""

    async def read(self, name: str) -> Crd | None:
        """The CRD of that name; None where there is none."""
        try:
            data = await self._client.request("GET", KIND, _path(name))
        except NotFound:
            return None
        return decode("GET", KIND, data, Crd)

    async def apply(self, body: dict[str, Any]) -> Crd:
        """Create or update it; return it after the write."""
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        path = _path(body["metadata"]["name"])
        data = await self._client.request("PATCH", KIND, path, query=query, body=body, content_type=APPLY)
        return decode("PATCH", KIND, data, Crd)

    async def delete(self, name: str) -> bool:
        """Delete it, and with it every object of its kind; return whether it existed."""
        try:
            await self._client.request("DELETE", KIND, _path(name))
        except NotFound:
            return False
        return True


def _path(name: str) -> str:
    return f"{_PATH}/{path_segment(name)}"


@click.group()
def crds() -> None:
    """The CRDs NodeDevice and PodDevice in the cluster."""


@crds.command(context_settings={"auto_envvar_prefix": "NODEDEVICE", "show_default": True})
@click.option("--kubeconfig", help="Kubeconfig to use; without it the pod's service account, or ~/.kube/config.")
@click.option("--allow-downgrade", is_flag=True, help="Also replace definitions of a newer release by these.")
@click.option("--timeout-seconds", type=click.FloatRange(1, 3600), default=_SECONDS, help="Time limit for all of it.")
def apply(kubeconfig: str | None, allow_downgrade: bool, timeout_seconds: float) -> None:
    """Apply this release's definitions and wait until the API server serves them. Writes nothing if a newer one exists."""
    try:
        asyncio.run(_run(kubeconfig, allow_downgrade, timeout_seconds, click.echo))
    except OperatorError as error:
        raise click.ClickException(str(error)) from error


async def _run(kubeconfig: str | None, allow_downgrade: bool, seconds: float, report: Callable[[str], None]) -> None:
    client = command.client(credentials.load(kubeconfig))
    try:
        async with command.within(seconds) as progress:
            await _apply_all(CrdApi(client), progress, allow_downgrade, report)
    finally:
        await client.close()


async def _apply_all(
    api: CrdApi, progress: command.Progress, allow_downgrade: bool, report: Callable[[str], None]
) -> None:
    bodies = shipped()
    before: dict[str, Crd | None] = {}
    for body in bodies:
        name = body["metadata"]["name"]
        progress.step = f"reading {name}"
        before[name] = found = await progress.retrying(partial(api.read, name))
        if found is not None and is_older(__version__, found.release) and not allow_downgrade:
            raise OlderRelease(name, found.release, __version__)
    for body in bodies:
        name = body["metadata"]["name"]
        progress.step = f"applying {name}"
        after = await progress.retrying(partial(api.apply, body))
        report(f"{name}: {_change(before[name], after)}")
    for body in bodies:
        progress.step = f"waiting until {body['metadata']['name']} is served"
        await progress.until(partial(_missing, api, body))
    report("the API server serves both")


def _change(before: Crd | None, after: Crd) -> str:
    if before is None:
        return f"created, of release {__version__}"
    if before.metadata.generation == after.metadata.generation and before.release == after.release:
        return f"is of release {__version__} already"
    return f"changed from release {before.release or 'unknown'} to {__version__}"


async def _missing(api: CrdApi, body: dict[str, Any]) -> str:
    """What is still missing; "" when nothing is. Raises Invalid where it will never be served."""
    name = body["metadata"]["name"]
    found = await api.read(name)
    if found is None:
        return f"{name} was deleted meanwhile"
    if found.rejected_names:
        raise Invalid("serve", name, f"another definition has its names: {found.rejected_names}")
    return "" if found.is_established else f"{name} is not established yet"
