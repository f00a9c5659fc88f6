"""The chart as the demos install it, rendered beforehand: `make demo` needs no Helm, which would first have to be built.

`make generate` writes the files in manifests/ (`python -m hack.demo.rendered_chart`). Each names two hashes, of the chart and of
its own text: while both are right nothing is rendered, so that `make generate` needs Helm only for a changed chart.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from hack import yaml_text
from tests.cluster.build.binaries import find
from tests.cluster.build.pins import family_of
from tests.cluster.chart import CHART, installed_manifests
from tests.cluster.errors import ClusterError
from tests.cluster.local.stack import chart_values

# of the demo in which pods share GPUs
SHARED: Final = "aliyun.com/gpu-mem"
WATCH_ONLY_VALUES: Final = Path(__file__).parents[2] / "docs/watch-only-values.yaml"

FOLDER: Final = Path(__file__).parent / "manifests"
# without a second scheduler, and what comes with one
_BASE: Final = "chart.yaml"
_SCHEDULER: Final = "scheduler.yaml"
# of the demo that only watches: its values change permissions and policies, so it is whole
_WATCH_ONLY: Final = "watch-only.yaml"
_TITLE: Final = (
    "# charts/nodedevice without workloads and definitions. Made by `make generate`, not to be edited by hand.\n"
)
_HASH: Final = "# sha256: "
# of the chart, and yet not rendered
_NOT_RENDERED: Final = ("README.md", "values.schema.json", "NOTES.txt")

Manifest = Mapping[str, Any]


def load(values: Manifest, progress: Callable[[str], None] = lambda _: None) -> list[Manifest]:
    """What tests.cluster.chart.installed_manifests gives for these values. Raises ClusterError for values that no demo has."""
    files = {
        json.dumps(chart_values(())): [_BASE],
        json.dumps(chart_values([SHARED])): [_BASE, _SCHEDULER],
        json.dumps(watch_only_values()): [_WATCH_ONLY],
    }
    found = files.get(json.dumps(values))
    if found is None:
        raise ClusterError(f"the chart is not rendered for {values}: add a file in {__name__}, and run `make generate`")
    return [*_definitions(), *(each for file in found for each in yaml_text.load_all((FOLDER / file).read_text()))]


def main() -> None:
    """Render each file that is not up to date. Raises ClusterError when helm is missing and cannot be built, or refuses."""
    base_file, scheduler_file, watch_file = (FOLDER / name for name in (_BASE, _SCHEDULER, _WATCH_ONLY))
    if all(_is_current(file) for file in (base_file, scheduler_file, watch_file)):
        return
    find(["helm"], print)
    FOLDER.mkdir(exist_ok=True)
    base = _rendered(chart_values(()))
    more = _rendered(chart_values([SHARED]))
    assert all(each in more for each in base), "the scheduler changes what the chart has without it: keep both whole"
    _write(base_file, base)
    _write(scheduler_file, [each for each in more if each not in base])
    _write(watch_file, _rendered(watch_only_values()))


def watch_only_values() -> dict[str, Any]:
    """Of the page on watching only."""
    found: dict[str, Any] = yaml.safe_load(WATCH_ONLY_VALUES.read_text())
    return found


def _rendered(values: Manifest) -> list[Manifest]:
    return [each for each in installed_manifests(values) if each["kind"] != "CustomResourceDefinition"]


def _definitions() -> list[Manifest]:
    return [yaml_text.load(file.read_text()) for file in sorted(CHART.glob("crds/*.yaml"))]


def _write(file: Path, manifests: Iterable[Manifest]) -> None:
    # always by the same writer: libyaml, where there is one, breaks lines elsewhere
    text = yaml.safe_dump_all(manifests, sort_keys=False, width=120)
    file.write_text(f"{_TITLE}{_HASH}{_digest(text)}\n{text}")


def _is_current(file: Path) -> bool:
    if not file.exists():
        return False
    title, _, rest = file.read_text().partition(_HASH)
    digest, _, text = rest.partition("\n")
    return (title, digest) == (_TITLE, _digest(text))


def _digest(text: str) -> str:
    """Of all that decides what is rendered, and of what came out."""
    files = [path for path in sorted(CHART.rglob("*")) if path.is_file()]
    rendered = [path for path in files if not any(part in _NOT_RENDERED for part in path.relative_to(CHART).parts)]
    digest = hashlib.sha256(f"{family_of('helm').pinned_version} {SHARED}".encode())
    digest.update(WATCH_ONLY_VALUES.read_bytes())
    for path in rendered:
        digest.update(f"\0{path.relative_to(CHART)}\0".encode() + path.read_bytes())
    return hashlib.sha256(digest.digest() + text.encode()).hexdigest()


if __name__ == "__main__":
    main()
