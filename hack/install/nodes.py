"""Carries a route out: moves archives to nodes or into a registry, and removes images and the agent's directory."""

import os
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from hack.install import images
from hack.install.commands import run
from hack.install.images import Image
from hack.install.route import Access, Route
from hack.install.values import Named
from hack.publish import dist
from hack.publish.programs import Program
from hack.publish.registry import Registry, login
from tests.cluster.build.binaries import find

Say = Callable[[str], None]
# in any registry, under the chart's names
_OURS: Final = re.compile(r"(?:.*/)?nodedevice-(?:agent|operator)(?:[:@].*)?")


def bring(route: Route, found: Mapping[str, Image], say: Say) -> dict[str, Named]:
    """Get the images to the nodes. Returns their names for the chart. Raises InstallError or ReleaseError."""
    named = named_by(route, found)
    if route.registry:
        _push(route.registry, found, named, say)
        return named
    if all(_has(access, found[program], name) for access in route.access for program, name in named.items()):
        return named
    for image in found.values():
        say(f"{image.name}: to the nodes")
        for load in route.loads:
            run([word.replace("{archive}", str(image.archive)) for word in load], f"bringing {image.program}")
        for access in route.access if route.has_digests else ():
            by_digest = f"{image.repository}@{named[image.program].digest}"
            run([*_ctr(access), "tag", "--force", image.name, by_digest], f"naming {image.program} by its digest")
    return named


def named_by(route: Route, found: Mapping[str, Image]) -> dict[str, Named]:
    """Names of built images for the chart: by digest if the nodes know them by it."""
    return {
        program: Named(program, image.tag, images.digest(image.archive) if route.has_digests else "")
        for program, image in found.items()
    }


def _has(access: Access, image: Image, named: Named) -> bool:
    """Whether the node has the image by its digest. A tag alone does not identify its content."""
    return bool(named.digest and access.ctr) and f"{image.repository}@{named.digest}" in _listed(access)


def _push(registry: str, found: Mapping[str, Image], named: Mapping[str, Named], say: Say) -> None:
    programs = find(["crane", "helm"], say)
    with tempfile.TemporaryDirectory(prefix="nodedevice-") as scratch:
        user, password = (os.environ.get(f"REGISTRY_{what}", "") for what in ("USERNAME", "PASSWORD"))
        logged_in = login(registry, user, password, Path(scratch))
        to = Registry(registry, *(Program(programs[name], logged_in) for name in ("crane", "helm")))
        for program, image in found.items():
            pushed = dist.Image(program, image.archive, named[program].digest, {})
            say(f"{to.push_image(pushed)}: pushed")
            to.tag(pushed, image.tag)


# -- images of nodes ------------------------------------------------------------------------------------------------------


def images_on(access: Access) -> list[str]:
    """Names of our images there, sorted. Raises InstallError."""
    return ours(_listed(access))


def ours(names: Iterable[str]) -> list[str]:
    """The names of our images, sorted."""
    return sorted(name for name in names if _OURS.fullmatch(name))


def remove_images(access: Access) -> None:
    """Remove all of our images, by each of their names. Raises InstallError."""
    listed = _listed(access)
    chosen = {name: digest for name, digest in listed.items() if _OURS.fullmatch(name)}
    if access.ctr is None:
        for name in chosen:
            run([*access.removing, name], f"removing {name}")
        return
    # the runtime also knows an image by its ID, which is not one of our names
    same = [name for name, digest in listed.items() if digest in chosen.values()]
    if same:
        run([*access.ctr, "rm", "--sync", *sorted(same)], f"removing images from {access.nodes}")


def remove_state(access: Access) -> None:
    """The agent's directory on the node. Raises InstallError."""
    run(access.state, f"removing the agent's directory from {access.nodes}")


def _listed(access: Access) -> dict[str, str]:
    """Digests by name; empty digests if the command lists only names."""
    if access.ctr is None:
        names = run(access.listing, f"listing images of {access.nodes}").split() if access.listing else []
        return dict.fromkeys(names, "")
    lines = run([*access.ctr, "ls"], f"listing images of {access.nodes}").splitlines()[1:]
    return {words[0]: words[2] for line in lines if len(words := line.split()) > 2}


def _ctr(access: Access) -> tuple[str, ...]:
    assert access.ctr is not None, "an image is named by its digest by ctr alone"
    return access.ctr
