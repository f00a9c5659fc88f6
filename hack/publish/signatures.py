"""Signatures by cosign: of the images, the chart and the sums, and attestations of the images' content and build.

With a key, or, in a workflow that may ask for an identity token, as that workflow. Stored in the registry, with the
signed images.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from hack.publish.dist import Dist, Image
from hack.publish.programs import Program

BUNDLE = "SHA256SUMS.sigstore.json"
# a signature by key is not entered into a public log, and no log is contacted
_BY_KEY = ("--use-signing-config=false", "--tlog-upload=false")


class Signer:
    """key: a private key of cosign's; None: the workflow's identity."""

    def __init__(self, cosign: Program, key: Path | None) -> None:
        self._cosign = cosign
        self._how: Sequence[str] = ("--yes", *(("--key", str(key), *_BY_KEY) if key else ()))

    def sign_sums(self, dist: Dist) -> Path:
        """Sign the sums, and with them every file of the release."""
        bundle = dist.folder / BUNDLE
        self._cosign.run("the signature", "sign-blob", *self._how, "--bundle", str(bundle), str(dist.sums))
        return bundle

    def sign(self, names: Iterable[str]) -> None:
        """names: by digest."""
        for name in names:
            self._cosign.run(name, "sign", *self._how, name)

    def attest(self, name: str, kind: str, predicate: Path) -> None:
        """kind: as cosign calls it, `cyclonedx` or `slsaprovenance1`."""
        self._cosign.run(name, "attest", *self._how, "--type", kind, "--predicate", str(predicate), name)

    def attest_image(self, dist: Dist, image: Image, repository: str) -> None:
        """Attest the build of the whole release, and the content of each architecture's image."""
        self.attest(f"{repository}@{image.digest}", "slsaprovenance1", dist.provenance)
        for architecture, digest in image.manifests.items():
            self.attest(f"{repository}@{digest}", "cyclonedx", dist.sbom(image, architecture))
