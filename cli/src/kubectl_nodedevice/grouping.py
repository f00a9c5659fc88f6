"""Groups needs by cause: fifteen devices with one cause are one line. Pure."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Final

from kubectl_nodedevice.attention import BROKEN, BROKEN_HELD, POD_UNSCHEDULABLE, POD_WAITING, Need
from kubectl_nodedevice.text import age, counted, some

_OF_DEVICES: Final = {BROKEN: "are unhealthy", BROKEN_HELD: "are unhealthy and in use"}
_OF_PODS: Final = frozenset({POD_WAITING, POD_UNSCHEDULABLE})
# names of one group that are printed
_MOST_NAMED: Final = 3


def grouped(needs: Iterable[Need], now: datetime) -> list[Need]:
    """One need for each cause, at the place of its first one. A group keeps the command of its first need."""
    groups: dict[tuple[str, ...], list[Need]] = {}
    for number, each in enumerate(needs):
        cause = _cause(each) or (str(number),)
        groups.setdefault(cause, []).append(each)
    return [_one(each, now) for each in groups.values()]


def _cause(need: Need) -> tuple[str, ...] | None:
    about = need.about
    if need.code in _OF_DEVICES:
        return need.code, about["resource"], about["reason"]
    if need.code in _OF_PODS:
        return need.code, about.get("resource", ""), about["reason"], about.get("requests", "")
    return None


def _one(needs: list[Need], now: datetime) -> Need:
    first = needs[0]
    if len(needs) == 1:
        return first
    since = min((each.since for each in needs if each.since), default="")
    ago = f" (the first {age(since, now)} ago)" if age(since, now) else ""
    about = {**first.about, "count": str(len(needs))}
    if first.code in _OF_DEVICES:
        nodes = list(dict.fromkeys(each.about["node"] for each in needs))
        on = f"node {nodes[0]}" if len(nodes) == 1 else f"{len(nodes):,} nodes ({some(nodes, _MOST_NAMED)})"
        why = about["reason"] or "without a reason"
        text = f"{len(needs):,} devices of {about['resource']} on {on} {_OF_DEVICES[first.code]}{ago}: {why}"
        return replace(first, text=text, since=since, about=about)
    pods = list(dict.fromkeys(each.about["pod"] for each in needs))
    wanted = about.get("resource") or about.get("requests", "")
    names = f"{counted(len(pods), 'pod')} ({some(pods, _MOST_NAMED)})"
    text = f"{names} {'are' if len(pods) > 1 else 'is'} pending for {wanted}{ago}: {about['reason']}"
    return replace(first, text=text, since=since, about=about)
