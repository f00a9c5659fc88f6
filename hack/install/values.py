"""Values for the chart: the images' location and names, and the first devices to offer. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

Json = dict[str, Any]

RELEASE: Final = "nodedevice"
# of imported images: no registry has this name, so that another's image is never pulled
LOADED: Final = "localhost"
# the chart's keys for the programs
PARTS: Final = {"nodedevice-agent": "agents", "nodedevice-operator": "operator"}
# of a new install: a device that nearly every Linux has
FIRST_RESOURCE: Final = "example.com/fuse"
_FIRST: Final = {"resourceName": FIRST_RESOURCE, "groups": [{"paths": [{"path": "/dev/fuse"}], "count": 4}]}


@dataclass(frozen=True)
class Named:
    """An image's name in the chart. digest: empty if nodes know it by its tag alone."""

    program: str
    tag: str
    digest: str = ""


def of_images(images: Mapping[str, Named], registry: str = "") -> Json:
    """Values for both images. registry: the one they were pushed to; empty: they are on the nodes."""
    pulled = {"registry": registry or LOADED, "tag": "", "pullPolicy": "IfNotPresent" if registry else "Never"}
    found: Json = {"image": pulled}
    for program, part in PARTS.items():
        image = images[program]
        found[part] = {"image": {"repository": program, "tag": image.tag, "digest": image.digest}}
    return found


def at_first() -> Json:
    """The devices offered by default."""
    return {"agents": {"config": {"plugins": {"generic": [_FIRST]}}}}


def is_unchanged(deployed: Mapping[str, Any], planned: Mapping[str, Any]) -> bool:
    """Whether an upgrade would change nothing: both as `helm status` and `helm upgrade --dry-run` print a release in
    JSON.
    """
    if (deployed.get("info") or {}).get("status") != "deployed":
        return False
    return _content(deployed) == _content(planned)


def _content(release: Mapping[str, Any]) -> Json:
    hooks = sorted(hook.get("manifest", "").strip() for hook in release.get("hooks") or [])
    return {"manifest": release.get("manifest", "").strip(), "config": release.get("config") or {}, "hooks": hooks}
