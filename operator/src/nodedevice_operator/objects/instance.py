"""Metadata that names the installation that created an object. Pure.

Argo CD may track objects by the same label. It would delete labelled objects that its manifests lack, unless annotations forbid it:
https://argo-cd.readthedocs.io/en/stable/user-guide/resource_tracking/
"""

from collections.abc import Mapping
from typing import Any, Final

LABEL: Final = "app.kubernetes.io/instance"
_KEPT: Final = {
    "argocd.argoproj.io/compare-options": "IgnoreExtraneous",
    "argocd.argoproj.io/sync-options": "Prune=false",
}


def labelled(instance: str, labels: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Metadata of an object without an owner. instance: name of the Helm release; empty: unknown. labels: further ones."""
    found = {**(labels or {}), **owned(instance).get("labels", {})}
    return {**({"labels": found} if found else {}), **({"annotations": dict(_KEPT)} if instance else {})}


def owned(instance: str) -> dict[str, Any]:
    """Metadata of an object with an owner, which Argo CD does not track by itself."""
    return {"labels": {LABEL: instance}} if instance else {}
