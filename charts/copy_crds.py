"""Copies crds/ into the chart, for the first install, and into the operator, which updates them.

Each copy names its release, so that an older one never replaces a newer one unasked. Part of `make generate`.
"""

from pathlib import Path

import yaml
from nodedevice_api.names import RELEASE_ANNOTATION

_ROOT = Path(__file__).parents[1]
SOURCE = _ROOT / "crds"
COPIES = (
    _ROOT / "charts" / "nodedevice" / "crds",
    _ROOT / "operator" / "src" / "nodedevice_operator" / "definitions",
)
_CHART = _ROOT / "charts" / "nodedevice" / "Chart.yaml"
_METADATA = "\nmetadata:\n"


def copy_of(text: str, release: str) -> str:
    """Add the release as an annotation to a definition; keeps the rest, including comments."""
    before, found, after = text.partition(_METADATA)
    if not found or yaml.safe_load(text)["metadata"].keys() != {"name"}:
        raise SystemExit("a CRD's metadata must be its name alone: the annotation with its release is added here")
    return f'{before}{_METADATA}  annotations: {{{RELEASE_ANNOTATION}: "{release}"}}\n{after}'


def main() -> None:
    """Write every copy, and remove those whose source is gone."""
    release = yaml.safe_load(_CHART.read_text(encoding="utf-8"))["appVersion"]
    made = {path.name: copy_of(path.read_text(encoding="utf-8"), release) for path in sorted(SOURCE.glob("*.yaml"))}
    for folder in COPIES:
        folder.mkdir(exist_ok=True)
        for old in folder.glob("*.yaml"):
            if old.name not in made:
                old.unlink()
        for name, text in made.items():
            (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
