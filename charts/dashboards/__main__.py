"""Write the dashboards that the chart ships: `python -m charts.dashboards`, a step of `make generate`."""

import json
from pathlib import Path
from typing import Final

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.cog.encoder import JSONEncoder

from charts.dashboards.fleet import fleet
from charts.dashboards.holders import holders
from charts.dashboards.status_fleet import fleet as status_fleet
from charts.dashboards.status_holders import holders as status_holders

FOLDER: Final = Path(__file__).parents[1] / "nodedevice" / "dashboards"
DASHBOARDS: Final = {
    "fleet.json": fleet,
    "who-uses-what.json": holders,
    # dashboards that only use metrics of kube-state-metrics
    "status-fleet.json": status_fleet,
    "status-who-uses-what.json": status_holders,
}


def as_json(board: dashboard.Dashboard) -> str:
    """Return a dashboard that Grafana can import. Numbered panels keep links to them stable between builds."""
    built = board.build()
    for number, panel in enumerate(built.panels or (), start=1):
        panel.id_val = number
    return json.dumps(built, cls=JSONEncoder, indent=2, sort_keys=True) + "\n"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, make in DASHBOARDS.items():
        (FOLDER / name).write_text(as_json(make()))


if __name__ == "__main__":
    main()
