"""Bills of materials in CycloneDX 1.6: content of an image by its own databases, requirements of a distribution or a
chart.

They do not depend on the time or place of writing.
"""

import json
import re
import tarfile
import uuid
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from email.parser import HeaderParser
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import yaml
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

_NAMESPACE = uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")  # RFC 4122: URLs


def of_image(name: str, version: str, architecture: str, roots: Iterable[Path], ours: Iterable[str], epoch: int) -> str:
    """The text of an image's SBOM. roots: unpacked file systems; ours: distributions that are copied without a
    dist-info.
    """
    subject = _component(name, version, PackageURL("oci", None, name, version, {"arch": architecture}), is_image=True)
    found = [component for root in roots for component in (*_debian(root), *_python(root))]
    found += [_pypi(distribution, version) for distribution in ours]
    return _write(subject, found, epoch)


def of_wheel(wheel: Path, epoch: int) -> str:
    """The text of a distribution's SBOM: its requirements, by name, as it leaves versions to the installation."""
    with ZipFile(wheel) as files:
        (path,) = [name for name in files.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = HeaderParser().parsestr(files.read(path).decode())
    required = [re.match(r"[\w.-]+", line) for line in metadata.get_all("Requires-Dist", [])]
    subject = _pypi(metadata["Name"], metadata["Version"])
    return _write(subject, [_pypi(match[0], None) for match in required if match], epoch)


def of_zipapp(name: str, version: str, libraries: Mapping[str, str], epoch: int) -> str:
    """The text of a zipapp's SBOM. libraries: versions by name of its libraries."""
    subject = _pypi(name, version)
    return _write(subject, [_pypi(library, of) for library, of in libraries.items()], epoch)


def of_chart(chart: Path, epoch: int) -> str:
    """The text of a packaged chart's SBOM: the images that its values name; a version is a digest, a tag, or the chart's own."""
    with tarfile.open(chart) as files:
        metadata, values = (_yaml(files, name) for name in ("Chart.yaml", "values.yaml"))
    name, version = metadata["name"], metadata["version"]
    registry = values["image"]["registry"]
    found = [_oci(values[part]["image"], registry, metadata["appVersion"]) for part in ("agents", "operator")]
    # from Kubernetes' own registry, independent of `image.registry`, at the version of the cluster
    found.append(_oci(values["scheduler"]["image"], "", None))
    return _write(_component(name, version, PackageURL("helm", None, name, version)), found, epoch)


def _yaml(files: tarfile.TarFile, name: str) -> Any:
    content = files.extractfile(f"nodedevice/{name}")
    assert content is not None
    return yaml.safe_load(content)


def _oci(image: Mapping[str, str], registry: str, version: str | None) -> Component:
    place = f"{registry}/{image['repository']}" if registry else image["repository"]
    name = place.rpartition("/")[2]
    qualifiers = {"repository_url": place} if "/" in place else {}
    wanted = image["digest"] or image["tag"] or version
    return _component(name, wanted, PackageURL("oci", None, name, wanted, qualifiers), is_image=True)


def _debian(root: Path) -> list[Component]:
    status = root / "var/lib/dpkg/status"
    if not status.exists():
        return []
    packages = map(HeaderParser().parsestr, status.read_text().strip().split("\n\n"))
    return [
        _component(
            package["Package"],
            package["Version"],
            PackageURL("deb", "debian", package["Package"], package["Version"], {"arch": package["Architecture"]}),
        )
        for package in packages
    ]


def _python(root: Path) -> list[Component]:
    files = (root / "opt/nodedevice").glob("*.dist-info/METADATA")
    found = (HeaderParser().parsestr(file.read_text(errors="replace")) for file in files)
    return [_pypi(metadata["Name"], metadata["Version"]) for metadata in found]


def _pypi(name: str, version: str | None) -> Component:
    return _component(name, version, PackageURL("pypi", None, name, version))


def _component(name: str, version: str | None, purl: PackageURL, is_image: bool = False) -> Component:
    kind = ComponentType.CONTAINER if is_image else ComponentType.LIBRARY
    return Component(name=name, version=version, type=kind, purl=purl, bom_ref=str(purl))


def _write(subject: Component, components: Iterable[Component], epoch: int) -> str:
    metadata = BomMetaData(component=subject, timestamp=datetime.fromtimestamp(epoch, UTC))
    bom = Bom(components=components, metadata=metadata)
    bom.register_dependency(subject, bom.components)
    content = ",".join(sorted(str(component.purl) for component in bom.components))
    bom.serial_number = uuid.uuid5(_NAMESPACE, f"{subject.purl} {content}")
    return json.dumps(json.loads(JsonV1Dot6(bom).output_as_string()), indent=2, sort_keys=True) + "\n"
