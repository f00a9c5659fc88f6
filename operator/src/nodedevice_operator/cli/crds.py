"""`nodedevice-operator crds apply`: create or update the CRDs of this release. The chart runs it before an upgrade.

Helm applies a chart's CRDs at install, over CRDs of any release, and never at upgrade. The command uses server-side apply with
Helm's field manager: Helm creates the CRDs, and refuses to install over changes of another field manager.
"""

import asyncio
import re
from functools import partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

import click
from nodedevice_api import names
from nodedevice_common.yaml_decoding import decode_yaml
from nodedevice_kube.api_errors import Invalid

from nodedevice_operator import __version__
from nodedevice_operator.cli import command_base as command
from nodedevice_operator.errors import OlderRelease
from nodedevice_operator.kube import credentials

if TYPE_CHECKING:
    from nodedevice_operator.cli.crd_api import Crd, CrdApi

NAMES: Final = tuple(
    f"{plural}.{names.GROUP}" for plural in (names.NODE_DEVICE_CONFIGS, names.NODE_DEVICES, names.POD_DEVICES)
)

_SECONDS: Final = 60.0
_RELEASE: Final = re.compile(r"v?(\d{1,9})\.(\d{1,9})\.(\d{1,9})(?:-([0-9A-Za-z.-]{1,64}))?(?:\+[0-9A-Za-z.-]{1,64})?")
# Of the parts of a pre-release a number sorts before a word; a release sorts after its pre-releases.
_NO_PRE_RELEASE: Final = ((2, 0, ""),)


def shipped() -> list[dict[str, Any]]:
    folder = files("nodedevice_operator").joinpath("definitions")
    texts = [entry.read_text(encoding="utf-8") for entry in folder.iterdir() if entry.name.endswith(".yaml")]
    return sorted((decode_yaml(text) for text in texts), key=lambda each: str(each["metadata"]["name"]))


@click.group()
def crds() -> None:
    """The CRDs NodeDevice, PodDevice and NodeDeviceConfig in the cluster."""


@crds.command(cls=command.OneCommand, context_settings=command.SETTINGS)
@command.kubeconfig_option
@click.option("--allow-downgrade", is_flag=True, help="Also replace definitions of a newer release by these.")
@click.option("--timeout-seconds", type=click.FloatRange(1, 3600), default=_SECONDS, help="Time limit for all of it.")
def apply(kubeconfig: str | None, allow_downgrade: bool, timeout_seconds: float) -> None:
    """Apply this release's definitions and wait until the API server serves them. Writes nothing if a newer one exists."""
    asyncio.run(_apply_all(kubeconfig, allow_downgrade, timeout_seconds))


async def _apply_all(kubeconfig: str | None, allow_downgrade: bool, seconds: float) -> None:
    # The models of the kubernetes package take 2 MiB, which the operator does not need.
    from nodedevice_operator.cli.crd_api import CrdApi
    from nodedevice_operator.kube.typed import typed_client

    bodies = {body["metadata"]["name"]: body for body in shipped()}
    before: dict[str, Crd | None] = {}
    login = credentials.load(kubeconfig)
    click.echo(f"applying the CRDs of release {__version__} to {login.cluster}")
    async with command.within(seconds) as progress:
        api = CrdApi(typed_client(login))
        for name in bodies:
            progress.step = f"reading {name}"
            before[name] = found = await progress.retrying(partial(api.read, name))
            if found is not None and is_older(__version__, found.release) and not allow_downgrade:
                raise OlderRelease(name, found.release, __version__)
        for name, body in bodies.items():
            progress.step = f"applying {name}"
            after = await progress.retrying(partial(api.apply, body))
            click.echo(f"{name}: {_change(before[name], after)}")
        for name in bodies:
            progress.step = f"waiting until {name} is served"
            await progress.until(partial(_missing, api, name))
    click.echo(f"the API server serves all {len(bodies)}")


def _change(before: "Crd | None", after: "Crd") -> str:
    if before is None:
        return f"created, of release {__version__}"
    if before.generation == after.generation and before.release == after.release:
        return f"is of release {__version__} already"
    return f"changed from release {before.release or 'unknown'} to {__version__}"


async def _missing(api: "CrdApi", name: str) -> str:
    """Names the missing part, or "". Raises Invalid if the API server will never serve the CRD."""
    found = await api.read(name)
    if found is None:
        return f"{name} was deleted meanwhile"
    if found.rejected_names:
        raise Invalid("serve", name, f"another definition has its names: {found.rejected_names}")
    return "" if found.is_established else f"{name} is not established yet"


def release(text: str) -> tuple[int, int, int, tuple[tuple[int, int, str], ...]] | None:
    """The sort key of the release in this text, as semantic versioning orders them; None if it is not a release."""
    match = _RELEASE.fullmatch(text)
    if match is None:
        return None
    parts = match[4].split(".") if match[4] else []
    order = tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts)
    return int(match[1]), int(match[2]), int(match[3]), order or _NO_PRE_RELEASE


def is_older(ours: str, there: str) -> bool:
    """Whether release `ours` is older than the existing `there`. Any text but a release counts as the oldest."""
    stored, own = release(there), release(ours)
    return stored is not None and own is not None and own < stored
