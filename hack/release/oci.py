"""OCI archives: layers whose bytes depend on the files alone, and an index of the architectures. Runs no program.

Specification: OCI image layout 1.0, which containerd's `ctr image import`, podman and skopeo read.
"""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_MEDIA = "application/vnd.oci.image"


@dataclass(frozen=True)
class Layer:
    """A compressed layer in a file; digest is of the file, diff_id of its uncompressed content."""

    path: Path
    digest: str
    diff_id: str


def layer(root: Path, target: Path, epoch: int) -> Layer:
    """Write a folder as a layer: all owned by root, as old as the commit, sorted."""
    diff = hashlib.sha256()
    with (
        target.open("wb") as raw,
        gzip.GzipFile("", "wb", compresslevel=6, mtime=0, fileobj=raw) as zipped,
        tarfile.open(fileobj=_Hashed(zipped, diff), mode="w|", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path in sorted(root.rglob("*")):
            archive.add(path, str(path.relative_to(root)), recursive=False, filter=lambda entry: _plain(entry, epoch))
    return Layer(target, _digest(target.read_bytes()), f"sha256:{diff.hexdigest()}")


def write(
    target: Path, name: str, images: Mapping[str, Sequence[Layer]], config: Mapping[str, object], epoch: int
) -> str:
    """Write an archive with an image for each architecture. Returns the index's digest, `sha256:…`, which the chart
    refers to.

    name: as `nodedevice-agent:0.1.0`, of docker.io unless it names a registry. images: layers by architecture, the
    lowest first.
    config: of all of them. An archive of a single architecture is also a docker archive.
    """
    full_name = name if "/" in name else f"docker.io/library/{name}"
    created = datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    blobs: dict[str, bytes | Path] = {}
    manifests = []
    for architecture, layers in sorted(images.items()):
        diff_ids = [layer.diff_id for layer in layers]
        about = {"architecture": architecture, "os": "linux", "created": created, "config": dict(config)}
        configuration = _blob(blobs, {**about, "rootfs": {"type": "layers", "diff_ids": diff_ids}}, "config.v1")
        blobs |= {layer.digest: layer.path for layer in layers}
        listed = [_descriptor(layer.digest, layer.path.stat().st_size, "layer.v1.tar+gzip") for layer in layers]
        manifest = _blob(blobs, {**_head("manifest.v1"), "config": configuration, "layers": listed}, "manifest.v1")
        manifests.append({**manifest, "platform": {"architecture": architecture, "os": "linux"}})
    index = _blob(blobs, {**_head("index.v1"), "manifests": manifests}, "index.v1")
    index["annotations"] = {
        "io.containerd.image.name": full_name,
        "org.opencontainers.image.ref.name": name.rpartition(":")[2],
    }
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as archive:
        _add(archive, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}', epoch)
        _add(archive, "index.json", _json({**_head("index.v1"), "manifests": [index]}), epoch)
        if len(images) == 1:
            _add(archive, "manifest.json", _json([_for_docker(name, configuration, layers)]), epoch)
        for digest, content in sorted(blobs.items()):
            _add(archive, _file(digest), content, epoch)
    return str(index["digest"])


def _for_docker(name: str, configuration: Mapping[str, object], layers: Sequence[Layer]) -> dict[str, object]:
    """An entry of docker's manifest.json, which names files of the same archive; not all versions of docker read an OCI
    index.
    """
    files = [_file(layer.digest) for layer in layers]
    return {"Config": _file(str(configuration["digest"])), "RepoTags": [name], "Layers": files}


def _file(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _head(kind: str) -> dict[str, object]:
    return {"schemaVersion": 2, "mediaType": f"{_MEDIA}.{kind}+json"}


def _blob(blobs: dict[str, bytes | Path], value: object, kind: str) -> dict[str, object]:
    content = _json(value)
    blobs[_digest(content)] = content
    return _descriptor(_digest(content), len(content), f"{kind}+json")


def _descriptor(digest: str, size: int, kind: str) -> dict[str, object]:
    return {"mediaType": f"{_MEDIA}.{kind}", "digest": digest, "size": size}


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _add(archive: tarfile.TarFile, name: str, content: bytes | Path, epoch: int) -> None:
    data = content.read_bytes() if isinstance(content, Path) else content
    entry = tarfile.TarInfo(name)
    entry.size, entry.mtime, entry.mode = len(data), epoch, 0o644
    archive.addfile(entry, io.BytesIO(data))


def _plain(entry: tarfile.TarInfo, epoch: int) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = epoch
    return entry


class _Hashed(io.RawIOBase):
    """Passes on the written bytes, and hashes them."""

    def __init__(self, target: gzip.GzipFile, digest: "hashlib._Hash") -> None:
        self._target, self._digest = target, digest

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._digest.update(data)
        return self._target.write(data)
