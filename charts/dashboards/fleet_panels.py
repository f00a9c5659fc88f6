"""Panels of both Fleet dashboards: the same facts, from metrics of the programs or of kube-state-metrics."""

from typing import Final, Protocol

from grafana_foundation_sdk.builders import bargauge, stat, table, timeseries

from charts.dashboards.panels import PERCENT, WARN, any_is_bad, bars, listing, number, over_time, steps

_NEARLY_ALL: Final = 0.9, 0.98


class Source(Protocol):
    """One of the two modules of queries. by: the labels to keep."""

    def devices(self, state: str, by: str = "") -> str: ...
    def unhealthy(self, by: str = "") -> str: ...
    def served(self, by: str) -> str: ...


def numbers(of: Source) -> list[stat.Panel]:
    return [
        number("Devices", "Every device that a device plugin lists.", of.devices("total")),
        number("In use", "Devices allocated to pods.", of.devices("allocated")),
        number("Available", "Devices that a pod could get now.", of.devices("available")),
        number("Unhealthy", "Unhealthy devices, in use or not.", of.unhealthy(), thresholds=any_is_bad()),
        number(
            "Cordoned", "Devices that an administrator took out.", of.devices("cordoned"), thresholds=any_is_bad(WARN)
        ),
        number(
            "Share in use",
            "Share of the healthy devices that are in use.",
            f"{of.devices('allocated')} / {of.devices('healthy')}",
            unit=PERCENT,
            thresholds=steps(*_NEARLY_ALL),
        ),
    ]


def not_ready(expr: str) -> stat.Panel:
    """expr: how many."""
    return number(
        "NodeDevices not ready",
        "Resources of a node where something that pods need is not there; the table below names them.",
        expr,
        thresholds=any_is_bad(),
    )


def conflicts(expr: str) -> stat.Panel:
    """expr: how many."""
    return number(
        "Conflicts",
        "Resources that another field manager owns on the Node: the operator does not write them.",
        expr,
        thresholds=any_is_bad(),
    )


def in_use_by_resource(of: Source) -> bargauge.Panel:
    return bars(
        "In use by resource",
        "Share of each resource's healthy devices that are in use.",
        "{{resource_name}}",
        f"{of.devices('allocated', 'resource_name')} / ({of.devices('healthy', 'resource_name')} > 0)",
        unit=PERCENT,
        most=1,
        thresholds=steps(*_NEARLY_ALL),
    )


def broken_by_resource(of: Source) -> timeseries.Panel:
    return over_time(
        "Unhealthy by resource",
        "Devices that are not healthy. A resource whose plugin is away has all of them here.",
        {"{{resource_name}}": of.unhealthy("resource_name")},
        stacked=True,
    )


def ways(of: Source, width: int = 12) -> tuple[timeseries.Panel, table.Panel]:
    return (
        over_time(
            "Devices by who gives them out",
            "nodedevice: the agents. kubelet, dra: the kubelet and DRA drivers, of which the devices are only shown.",
            {"{{served_by}}": of.served("served_by")},
            stacked=True,
            width=width,
        ),
        listing(
            "Resources by who gives them out",
            "One resource may be served in several ways, on different nodes. For DRA: the driver and its pool.",
            of.served("served_by, resource_name"),
            {"served_by": "Served by", "resource_name": "Resource", "Value": "Devices"},
            width=width,
        ),
    )
