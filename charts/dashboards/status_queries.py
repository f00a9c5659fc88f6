"""PromQL for the metrics that kube-state-metrics makes of NodeDevices and PodDevices with the chart's configuration.

kube-state-metrics may run twice, and adds labels of its own: each fact is taken once, by `max` over the labels that name it.
"""

from typing import Final

from charts.dashboards import queries as q

NODE_DEVICE: Final = "node, resource_name"
HOLDER: Final = "namespace, pod, node, uid"
_OF_PODS: Final = f'{q.CLUSTER}, node=~"$node", namespace=~"$namespace"'
# `resources` of a PodDevice is a list such as vendor.com/gpu=2,vendor.com/nic=1
_OF_PODS_INFO: Final = f'{_OF_PODS}, resources=~"(.*,)?$resource=.*"'


def number(state: str) -> str:
    """Query a number in the status of each NodeDevice."""
    return q.once(f"kube_nodedevice_status_{state}", NODE_DEVICE, q.OF_BOTH)


def devices(state: str, by: str = "") -> str:
    """Query the fleet's devices in a state. by: the label to keep, if any."""
    return f"sum by ({by}) ({number(state)})" if by else f"sum({number(state)})"


def served(by: str) -> str:
    """Query all devices by their allocator. by: the labels to keep."""
    agents = q.once("kube_nodedevice_info", f"{NODE_DEVICE}, served_by", q.OF_BOTH)
    return f"sum by ({by}) ({agents} * on (cluster, {NODE_DEVICE}) group_left () {number('total')})"


def unhealthy(by: str = "") -> str:
    return f"{devices('total', by)} - {devices('healthy', by)}"


def condition(kind: str, more: str = "") -> str:
    """Query a condition of each NodeDevice: 1 for True, else 0, with the reason. more: further matchers."""
    matchers = f'{q.OF_BOTH}, type="{kind}"{more}'
    return q.once("kube_nodedevice_status_condition", f"{NODE_DEVICE}, reason", matchers)


def not_ready() -> str:
    """Query 0 for each NodeDevice that should be Ready and is not. Skips NodeDevices without expected or held devices."""
    on = f"on (cluster, {NODE_DEVICE})"
    meant = condition("Ready", ', reason!~"NoDevices|AllCordoned|NotConfigured"')
    gone = condition("Ready", ', reason="EndpointGone"')
    return f"{meant} == 0 unless {on} ({gone} unless {on} {number('allocated')} > 0)"


def listed(metric: str, labels: str, more: str = "") -> str:
    """Query a series for each list entry of a NodeDevice. more: further matchers."""
    return q.once(f"kube_nodedevice_{metric}", f"{NODE_DEVICE}, {labels}", f"{q.OF_BOTH}{more}")


def of_devices(metric: str, labels: str = "device_id") -> str:
    """Query a number of each listed device. labels: labels to keep in addition to the NodeDevice's."""
    return q.once(f"kube_nodedevice_status_device_{metric}", f"{NODE_DEVICE}, {labels}", q.OF_BOTH)


def by_model(metric: str) -> str:
    """Query the sum of a number of the listed devices by model."""
    model = f"{of_devices('info', 'device_id, model')}"
    return f"sum by (model) ({of_devices(metric)} * on (cluster, {NODE_DEVICE}, device_id) group_left (model) {model})"


def memory_of(metric: str) -> str:
    """Query the bytes of a number of parts of each physical device."""
    return f"{of_devices(metric)} * {of_devices('part_memory_bytes')}"


def parts_of_one_device() -> str:
    """Query the largest number of free parts on one physical device of each NodeDevice."""
    return number("parts_largest_available")


def pending() -> str:
    """Query the time since which each pending pod has its reason, in seconds since 1970."""
    return listed("status_waiting_since", "namespace, pod, reason")


def containers() -> str:
    """Query the time when each container got its devices, in seconds since 1970."""
    matchers = f'{q.OF_BOTH}, namespace=~"$namespace"'
    return q.once("kube_nodedevice_status_allocation_since", f"{NODE_DEVICE}, namespace, pod, container", matchers)


def pods(more: str = "") -> str:
    """Query 1 for each pod with a selected resource; labels have its resources and their health. more: further matchers."""
    return q.once("kube_poddevice_info", f"{HOLDER}, resources, devices, health", f"{_OF_PODS_INFO}{more}")


def pods_since(more: str = "") -> str:
    """Query the creation time of the PodDevice of each pod of pods(), in milliseconds since 1970."""
    created = q.once("kube_poddevice_created", HOLDER, _OF_PODS)
    return f"{pods(more)} * on (cluster, {HOLDER}) group_left () ({created} * 1000)"
