"""The common parts of all dashboards: identity, variables, and links between dashboards."""

from dataclasses import dataclass
from typing import Final

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models import dashboard as models

from charts.dashboards.panels import SOURCE

FLEET_UID: Final = "nodedevice-fleet"
HOLDERS_UID: Final = "nodedevice-holders"
STATUS_FLEET_UID: Final = "nodedevice-status-fleet"
STATUS_HOLDERS_UID: Final = "nodedevice-status-holders"
TAG: Final = "nodedevice"
# they keep cluster, time and data source in links
KEPT: Final = "${__url_time_range}&${datasource:queryparam}&${cluster:queryparam}"


@dataclass(frozen=True)
class Sources:
    """The series that provide the values of the variables."""

    cluster: str
    resource: str
    node: str


PROGRAMS: Final = Sources(
    "nodedevice_operator_info",
    'nodedevice_operator_devices{cluster=~"$cluster"}',
    'nodedevice_agent_info{cluster=~"$cluster"}',
)
STATUS: Final = Sources(
    "kube_nodedevice_info", 'kube_nodedevice_info{cluster=~"$cluster"}', 'kube_nodedevice_info{cluster=~"$cluster"}'
)


def frame(uid: str, title: str, description: str, sources: Sources = PROGRAMS) -> dashboard.Dashboard:
    """Return a dashboard with the common variables and without panels."""
    return (
        dashboard.Dashboard(title)
        .uid(uid)
        .description(description)
        .tags([TAG])
        .refresh("30s")
        .time("now-6h", "now")
        .timezone("browser")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .annotations([])
        .link(
            dashboard.DashboardLink("nodedevice")
            .type(models.DashboardLinkType.DASHBOARDS)
            .tags([TAG])
            .tooltip("The other dashboards of nodedevice")
            .as_dropdown(False)
            .include_vars(True)
            .keep_time(True)
        )
        .with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
        .with_variable(variable("cluster", "Cluster", sources.cluster))
        .with_variable(variable("resource", "Resource", sources.resource, "resource_name"))
        .with_variable(variable("node", "Node", sources.node))
    )


def variable(name: str, label: str, series: str, of: str = "") -> dashboard.QueryVariable:
    """Return a variable with the values of a label. All includes series without the label: a single cluster may lack a name."""
    return (
        dashboard.QueryVariable(name)
        .label(label)
        .datasource(SOURCE)
        .query({"query": f"label_values({series}, {of or name})", "refId": "PrometheusVariableQueryEditor"})
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.NATURAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(models.VariableOption(selected=True, text="All", value="$__all"))
    )
