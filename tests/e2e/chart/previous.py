"""The chart as a release before this one had it: an older version, and definitions that lack something of today's."""

import shutil
from pathlib import Path

import yaml

from hack.cluster.chart import CHART

VERSION = "0.0.9"
DEFINITION = "nodedevices.nodedevice.io"
RELEASE_ANNOTATION = "nodedevice.io/release"
# a column that `kubectl get` shows: no object loses anything by it, and everybody can see whether it is there
LACKED = "Ready"


def previous_chart(folder: Path) -> Path:
    """A copy of the chart in `folder`, which is made, with those changes. Returns it."""
    shutil.copytree(CHART, folder)
    chart = yaml.safe_load((folder / "Chart.yaml").read_text())
    (folder / "Chart.yaml").write_text(yaml.safe_dump({**chart, "version": VERSION, "appVersion": VERSION}))
    for file in (folder / "crds").glob("*.yaml"):
        definition = yaml.safe_load(file.read_text())
        definition["metadata"]["annotations"][RELEASE_ANNOTATION] = VERSION
        for version in definition["spec"]["versions"]:
            columns = version["additionalPrinterColumns"]
            version["additionalPrinterColumns"] = [column for column in columns if column["name"] != LACKED]
        file.write_text(yaml.safe_dump(definition))
    return folder
