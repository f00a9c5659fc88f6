"""Images and chart in a registry: crane copies the archives unchanged, Helm pushes the chart, tags come last.

A tag that exists with other content is never moved: users who installed it would get another image.
"""

import base64
import json
import re
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

from nodedevice_kube.masking import remember_login

from hack.publish.dist import Dist, Image
from hack.publish.programs import Program, failure
from hack.release import sums
from hack.release.errors import ReleaseError

_ABSENT = re.compile(r"MANIFEST_UNKNOWN|NAME_UNKNOWN|NOT_FOUND|\b404\b")
_LOOPBACK = re.compile(r"(localhost|127\.\d+\.\d+\.\d+)(:\d+)?(/|$)")


# clients find the log-in of Docker Hub by this name, whichever alias is used
_DOCKER_HUB = "https://index.docker.io/v1/"
_OF_DOCKER_HUB = ("docker.io", "index.docker.io", "registry-1.docker.io")


class Registry:
    """prefix: as in `registry.example.com/team`."""

    def __init__(self, prefix: str, crane: Program, helm: Program) -> None:
        self.prefix = prefix
        self._crane, self._helm = crane, helm

    def check(self, dist: Dist) -> None:
        """Raise ReleaseError if it does not respond, refuses us, or has another release of that version; changes
        nothing.
        """
        for image in dist.images:
            found = self._tagged(image.program, dist.version)
            if found not in ("", image.digest):
                raise self._taken(image.program, dist.version)
        self._published_chart(dist)

    def push_image(self, image: Image) -> str:
        """The whole index, without a tag. Returns its name by digest."""
        name = f"{self.prefix}/{image.program}@{image.digest}"
        with tempfile.TemporaryDirectory(prefix="nodedevice-") as layout:
            with tarfile.open(image.archive) as archive:
                archive.extractall(layout, filter="data")
            self._crane.run(self.prefix, "push", layout, name)
        return name

    def push_chart(self, dist: Dist) -> str:
        """The chart under its version. Returns its name by digest."""
        if not (digest := self._published_chart(dist)):
            over_http = ["--plain-http"] if _LOOPBACK.match(self.prefix) else []
            self._helm.run(self.prefix, "push", str(dist.chart), f"oci://{self.prefix}", *over_http)
            digest = self._published_chart(dist)
        return f"{self.prefix}/nodedevice@{digest}"

    def tag(self, image: Image, version: str) -> None:
        self._crane.run(self.prefix, "tag", f"{self.prefix}/{image.program}@{image.digest}", version)

    def _published_chart(self, dist: Dist) -> str:
        """Digest of the chart's manifest; empty if it does not exist. Helm writes the time into it: each push has
        another.
        """
        digest = self._tagged("nodedevice", dist.version)
        if digest:
            manifest = json.loads(self._crane.run(self.prefix, "manifest", f"{self.prefix}/nodedevice@{digest}"))
            if f"sha256:{sums.digest(dist.chart)}" not in [layer["digest"] for layer in manifest.get("layers", [])]:
                raise self._taken("nodedevice", dist.version)
        return digest

    def _tagged(self, repository: str, tag: str) -> str:
        done = self._crane.attempt("digest", f"{self.prefix}/{repository}:{tag}")
        if done.returncode == 0:
            return done.stdout.strip()
        if _ABSENT.search(done.stderr):
            return ""
        raise failure(self.prefix, done)

    def _taken(self, repository: str, tag: str) -> ReleaseError:
        return ReleaseError(
            f"{self.prefix}/{repository}:{tag} is there with other content",
            "release another VERSION, or delete that one from the registry",
        )


def login(prefix: str, username: str, password: str, folder: Path) -> Mapping[str, str]:
    """Environment for crane, cosign and Helm with that user's login: a file in `folder`. Empty without a user."""
    if not username:
        return {}
    remember_login(username, password)
    host = prefix.split("/")[0]
    names = (host, _DOCKER_HUB) if host in _OF_DOCKER_HUB else (host,)
    token = base64.b64encode(f"{username}:{password}".encode()).decode()
    file = folder / "config.json"
    file.touch(mode=0o600)
    file.write_text(json.dumps({"auths": {name: {"auth": token} for name in names}}))
    return {"DOCKER_CONFIG": str(folder), "HELM_REGISTRY_CONFIG": str(file)}
