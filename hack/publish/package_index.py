"""Publishes wheels and sdists in a Python package index, by uv, which reads its credentials from UV_PUBLISH_* itself."""

from urllib.error import HTTPError
from urllib.request import urlopen

from hack.publish.dist import Dist
from hack.publish.programs import Program
from hack.release.errors import ReleaseError

_ANSWER_SECONDS = 10.0


class PackageIndex:
    """address: target of the files.

    check: the same index for installers; with it, existing files are not sent again.
    """

    def __init__(self, uv: Program, address: str, check: str) -> None:
        self._uv = uv
        self._address = address
        self._command = ["publish", "--no-progress", "--publish-url", address]
        if check:
            self._command += ["--check-url", check]

    def check(self) -> None:
        """Raise ReleaseError without a response; only an upload shows whether we may upload."""
        try:
            urlopen(self._address, timeout=_ANSWER_SECONDS).close()
        except HTTPError as refusal:
            refusal.close()
        except (OSError, ValueError) as exc:
            raise ReleaseError(
                f"INDEX={self._address} sends no response ({exc})",
                "check its address, and that this machine reaches it",
            ) from exc

    def upload(self, dist: Dist) -> None:
        self._uv.run(self._address, *self._command, *map(str, dist.distributions))
