"""PromQL on what kube-state-metrics makes of NodeDevices and PodDevices with the configuration that the chart ships.

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
    """A number in the status of each NodeDevice."""
    return q.once(f"kube_nodedevice_status_{state}", NODE_DEVICE, q.OF_BOTH)


def devices(state: str, by: str = "") -> str:
    """Devices of the fleet in that state. by: the label to keep, if any."""
    return f"sum by ({by}) ({number(state)})" if by else f"sum({number(state)})"


def served(by: str) -> str:
    """All devices by who gives them out. by: the labels to keep."""
    agents = q.once("kube_nodedevice_info", f"{NODE_DEVICE}, served_by", q.OF_BOTH)
    return f"sum by ({by}) ({agents} * on (cluster, {NODE_DEVICE}) group_left () {number('total')})"


def unhealthy(by: str = "") -> str:
    return f"{devices('total', by)} - {devices('healthy', by)}"


def condition(kind: str, more: str = "") -> str:
    """1 for each NodeDevice where it is True, and 0 where it is not; with the reason. more: further matchers."""
    matchers = f'{q.OF_BOTH}, type="{kind}"{more}'
    return q.once("kube_nodedevice_status_condition", f"{NODE_DEVICE}, reason", matchers)


def not_ready() -> str:
    """0 for each NodeDevice that is not Ready and should be: not where nothing is meant to be there, nor held."""
    on = f"on (cluster, {NODE_DEVICE})"
    meant = condition("Ready", ', reason!~"NoDevices|AllCordoned|NotConfigured"')
    gone = condition("Ready", ', reason="EndpointGone"')
    return f"{meant} == 0 unless {on} ({gone} unless {on} {number('allocated')} > 0)"


def listed(metric: str, labels: str, more: str = "") -> str:
    """A series for each thing in the lists of a NodeDevice. more: further matchers."""
    return q.once(f"kube_nodedevice_{metric}", f"{NODE_DEVICE}, {labels}", f"{q.OF_BOTH}{more}")


def of_devices(metric: str, labels: str = "device_id") -> str:
    """A number of each listed device. labels: those to keep, besides the NodeDevice's."""
    return q.once(f"kube_nodedevice_status_device_{metric}", f"{NODE_DEVICE}, {labels}", q.OF_BOTH)


def by_model(metric: str) -> str:
    """The sum of a number of each listed device, by the device's model."""
    model = f"{of_devices('info', 'device_id, model')}"
    return f"sum by (model) ({of_devices(metric)} * on (cluster, {NODE_DEVICE}, device_id) group_left (model) {model})"


def memory_of(metric: str) -> str:
    """Bytes of that many parts of each physical device."""
    return f"{of_devices(metric)} * {of_devices('part_memory_bytes')}"


def parts_of_one_device() -> str:
    """The most parts that are available on one physical device, of each NodeDevice."""
    return number("parts_largest_available")


def pending() -> str:
    """Since when each pending pod has waited for its reason, in seconds since 1970."""
    return listed("status_waiting_since", "namespace, pod, reason")


def containers() -> str:
    """When each container that holds devices got them, in seconds since 1970."""
    matchers = f'{q.OF_BOTH}, namespace=~"$namespace"'
    return q.once("kube_nodedevice_status_allocation_since", f"{NODE_DEVICE}, namespace, pod, container", matchers)


def pods(more: str = "") -> str:
    """1 for each pod with a selected resource: of which it holds how many, and their health. more: further matchers."""
    return q.once("kube_poddevice_info", f"{HOLDER}, resources, devices, health", f"{_OF_PODS_INFO}{more}")


def pods_since(more: str = "") -> str:
    """The same pods, each with when it got its devices, in milliseconds since 1970."""
    created = q.once("kube_poddevice_created", HOLDER, _OF_PODS)
    return f"{pods(more)} * on (cluster, {HOLDER}) group_left () ({created} * 1000)"
