"""Downloads published programs: a minute instead of a build, if the projects can be reached.

`BINARIES` in the environment: `download` never builds published programs, `build` never downloads; without it,
programs that cannot be downloaded within seconds are built. `BINARIES_MIRROR=https://mirror.example.com/files` stands
before each address, as in `https://mirror.example.com/files/dl.k8s.io/release/…`.
A program appears in the cache complete and with the right checksum, or not at all; an interrupted download resumes.
"""

import hashlib
import os
import shutil
import tarfile
import time
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from types import MappingProxyType
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3
from urllib3.exceptions import HTTPError

from tests.cluster.build.builder import built_path
from tests.cluster.build.cache import lock
from tests.cluster.build.pins import family_of
from tests.cluster.build.published import Published, published
from tests.cluster.build.time_left import received
from tests.cluster.errors import BinaryError

_ANSWER_SECONDS = 4.0
_STALLED_SECONDS = 20.0
_TRIES = 5
_BLOCK_BYTES = 64 * 1024
_REPORT_EVERY_SECONDS = 5.0
_REDIRECTS_ALONE = urllib3.Retry(None, connect=0, read=0, redirect=10, status=0, other=0)
_CHOICES = ("build", "download")


class _NotReached(Exception):
    """A project's address sent no usable response; names the address."""


def download(binaries: Sequence[str], cache: Path, progress: Callable[[str], None]) -> None:
    """Download published programs that the cache lacks; the caller builds the programs that are still missing.

    Raises BinaryError for a wrong checksum, and if BINARIES=download cannot be followed.
    """
    choice = os.environ.get("BINARIES", "")
    if choice and choice not in _CHOICES:
        raise BinaryError(
            "BINARIES", f"{choice} is neither build nor download", "unset it: what can be reached is downloaded"
        )
    files = {binary: file for binary in binaries if (file := published(binary))}
    if choice == "build" or not files:
        return
    with lock(cache, progress):
        missing = [binary for binary in files if not built_path(binary, cache).exists()]
        silent: set[str] = set()
        for number, binary in enumerate(missing, start=1):
            if files[binary].host in silent:
                continue
            label = f"[{number}/{len(missing)}] {binary} {family_of(binary).version}"
            try:
                _fetch(files[binary], built_path(binary, cache), label, progress)
            except _NotReached as exc:
                if choice == "download":
                    raise BinaryError(
                        binary,
                        f"could not be downloaded: {exc}",
                        "name a mirror in BINARIES_MIRROR, or unset BINARIES to build it",
                    ) from exc
                silent.add(files[binary].host)
                progress(f"{label}: not downloaded, to be built: {exc}")


def _open(url: str, read_seconds: float, headers: Mapping[str, str] = MappingProxyType({})) -> urllib3.BaseHTTPResponse:
    """The response, before its body is read. Uses the environment's proxy. Raises HTTPError."""
    address = urlsplit(url)
    proxy = "" if proxy_bypass(address.hostname or "") else getproxies().get(address.scheme, "")
    account = unquote(urllib3.util.parse_url(proxy).auth or "") if proxy else ""
    by = urllib3.make_headers(proxy_basic_auth=account) if account else None
    manager = urllib3.ProxyManager(proxy, proxy_headers=by) if proxy else urllib3.PoolManager()
    timeout = urllib3.Timeout(connect=_ANSWER_SECONDS, read=read_seconds)
    return manager.request(
        "GET", url, headers=dict(headers), timeout=timeout, retries=_REDIRECTS_ALONE, preload_content=False
    )


def _url(address: str) -> str:
    mirror = os.environ.get("BINARIES_MIRROR", "").rstrip("/")
    return f"{mirror}/{address}" if mirror else f"https://{address}"


def _fetch(file: Published, target: Path, label: str, progress: Callable[[str], None]) -> None:
    expected = file.pinned() or _published_checksum(file)
    target.parent.mkdir(parents=True, exist_ok=True)
    # the name contains the checksum: a partial download of another file is not resumed
    part = target.with_name(f".{target.name}.{expected[:12]}.part")
    progress(f"{label}: downloading from {file.host}")
    _receive(_url(file.address), part, label, progress)
    with part.open("rb") as received:
        found = hashlib.file_digest(received, "sha256").hexdigest()
    if found != expected:
        part.unlink()
        raise BinaryError(
            target.name,
            f"{_url(file.address)} has the SHA-256 {found}, and {expected} is the right one: it is not used",
            "try again; if it stays so, it was changed on its way: BINARIES=build builds it from source",
        )
    _keep(part, file.member, target)
    progress(f"{label}: downloaded, checksum verified")


def _published_checksum(file: Published) -> str:
    url = _url(file.checksums)
    try:
        answer = _open(url, _ANSWER_SECONDS)
        text = answer.data.decode(errors="replace")
    except HTTPError as exc:
        raise _NotReached(f"{url} sent no response within {_ANSWER_SECONDS:.0f} s ({type(exc).__name__})") from exc
    if answer.status != HTTPStatus.OK:
        raise _NotReached(f"{url} answered {answer.status}")
    checksum = file.checksum_in(text)
    if checksum is None:
        raise _NotReached(f"{url} names no checksum of {file.file_name}")
    return checksum


def _receive(url: str, part: Path, label: str, progress: Callable[[str], None]) -> None:
    """Append to `part` until it is complete; resumes after each interruption."""
    for attempt in range(1, _TRIES + 1):
        try:
            _receive_rest(url, part, label, progress)
        except HTTPError as exc:
            if attempt == _TRIES:
                raise _NotReached(f"{url} was cut off {_TRIES} times ({type(exc).__name__})") from exc
            progress(f"{label}: cut off after {part.stat().st_size if part.exists() else 0} bytes, resuming")
        else:
            return


def _receive_rest(url: str, part: Path, label: str, progress: Callable[[str], None]) -> None:
    have = part.stat().st_size if part.exists() else 0
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    with _open(url, _STALLED_SECONDS, headers) as answer:
        if have and answer.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            return  # it is already complete
        if answer.status not in (HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT):
            raise _NotReached(f"{url} answered {answer.status}")
        goes_on = answer.status == HTTPStatus.PARTIAL_CONTENT
        before = have if goes_on else 0
        length = answer.headers.get("Content-Length", "")
        total = before + int(length) if length.isdecimal() else 0
        began = reported = time.monotonic()
        with part.open("ab" if goes_on else "wb") as file:
            while block := answer.read1(_BLOCK_BYTES):
                file.write(block)
                if time.monotonic() - reported > _REPORT_EVERY_SECONDS:
                    reported = time.monotonic()
                    progress(f"{label}: {received(file.tell(), total, before, reported - began)}")


def _keep(part: Path, member: str | None, target: Path) -> None:
    unfinished = target.with_name(f".{target.name}.unfinished")
    if member is None:
        part.replace(unfinished)
    else:
        with tarfile.open(part) as archive, unfinished.open("wb") as program:
            packed = archive.extractfile(member)
            assert packed is not None, f"{member} is not a file"
            shutil.copyfileobj(packed, program)
        part.unlink()
    unfinished.chmod(0o755)
    unfinished.replace(target)
