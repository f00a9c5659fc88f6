"""Finds the owner of nodedevice in a cluster: a Helm release, or workloads without Helm. Only one is allowed. Pure."""

import contextlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from nodedevice_api.names import RELEASE_ANNOTATION
from packaging.version import InvalidVersion, Version

from hack.install.errors import InstallError

_CHART = re.compile(r"nodedevice-v?\d")
_RELEASE = "meta.helm.sh/release-name"
_NAMESPACE = "meta.helm.sh/release-namespace"
# an operation is in progress, or was interrupted
_UNFINISHED = ("pending-install", "pending-upgrade", "pending-rollback", "uninstalling")


@dataclass(frozen=True, order=True)
class Owner:
    """namespace: of the release. release: empty for workloads without a Helm release."""

    namespace: str
    release: str

    def __str__(self) -> str:
        by = f"the release {self.release}" if self.release else "a manifest"
        return f"{by} in the namespace {self.namespace}"


def of_releases(listed: Iterable[Mapping[str, Any]]) -> set[Owner]:
    """listed: JSON output of `helm list`."""
    return {_owner(each) for each in listed if _CHART.match(each.get("chart", ""))}


def check_idle(listed: Iterable[Mapping[str, Any]]) -> None:
    """Raises InstallError, with a remedy, if a release of ours has an operation in progress."""
    for each in listed:
        if _CHART.match(each.get("chart", "")) and each.get("status") in _UNFINISHED:
            found = _owner(each)
            begun = each["status"] in ("pending-upgrade", "pending-rollback")
            ended = f"`helm rollback {found.release} --namespace {found.namespace}`" if begun else "`make uninstall`"
            raise InstallError(
                f"{found} is {each['status']}: a change is in progress, or was interrupted",
                f"wait for it; if it was interrupted, {ended}, and then again",
            )


def of_workloads(items: Iterable[Mapping[str, Any]]) -> set[Owner]:
    """items: DaemonSets and Deployments with the chart's label."""
    found = set()
    for item in items:
        metadata = item["metadata"]
        marks = metadata.get("annotations") or {}
        found.add(Owner(marks.get(_NAMESPACE, metadata["namespace"]), marks.get(_RELEASE, "")))
    return found


def check_kinds(definitions: Iterable[Mapping[str, Any]], release: str) -> None:
    """Raises InstallError if the cluster's kinds are of a newer release than `release`, the tree's.

    Helm would replace them by older ones, and objects would lose fields that the older ones lack.
    """
    for definition in definitions:
        marks = definition["metadata"].get("annotations") or {}
        found = marks.get(RELEASE_ANNOTATION, "")
        with contextlib.suppress(InvalidVersion):
            if found and Version(found) > Version(release):
                raise InstallError(
                    f"the kind {definition['metadata']['name']} is of release {found}, newer than this tree, {release}",
                    "install from that release or a newer one, or remove the kinds with `make uninstall ALL=1`",
                )


def _owner(release: Mapping[str, Any]) -> Owner:
    return Owner(release["namespace"], release["name"])


def check_alone(found: Iterable[Owner], wanted: Owner) -> None:
    """Raises InstallError, with a remedy, if nodedevice is installed by another owner than `wanted`."""
    others = [owner for owner in found if owner != wanted]
    if not others:
        return
    named = " and ".join(map(str, others))
    other = others[0]
    if other.release:
        names = f"NAMESPACE={other.namespace} RELEASE={other.release}"
        remedy = f"upgrade it with `make install {names}`, or end it with `make uninstall {names}`"
    else:
        remedy = "remove it with the commands that the manifest names (docs/install.md#without-helm)"
    raise InstallError(
        f"nodedevice is installed here already, as {named}, and a cluster has only one",
        f"{remedy}. Nothing was changed",
    )
