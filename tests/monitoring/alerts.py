"""For each alert, series that make it fire and then resolve, and what it says meanwhile: input for promtool's rule tests."""

from collections.abc import Mapping
from dataclasses import dataclass, field

Labels = Mapping[str, str]

_GPU = {"node": "node-a", "resource_name": "example.com/gpu"}


@dataclass(frozen=True)
class Case:
    """One alert. Series are in promtool's notation, one value a minute, or in every_minutes.

    minutes: one at which it is pending, or its cause is not there yet; one at which it fires; one at which it has resolved.
    message: a part of the description. value: as it stands there, where it does. labels: of the alert besides its severity.
    """

    alert: str
    series: Mapping[str, str]
    minutes: tuple[int, int, int]
    message: str
    value: str = ""
    severity: str = "warning"
    labels: Labels = field(default_factory=dict)
    every_minutes: int = 1


CASES = (
    Case(
        "NodeDeviceDevicesBroken",
        # both operators report it, and the alert fires once
        {
            'nodedevice_operator_unhealthy_devices{node="node-a",resource_name="example.com/gpu",instance="a"}': "2x15 _x10",
            'nodedevice_operator_unhealthy_devices{node="node-a",resource_name="example.com/gpu",instance="b"}': "2x15 _x10",
        },
        (9, 11, 22),
        "2 devices of example.com/gpu on node-a are unhealthy",
        value="2",
        labels=_GPU,
    ),
    Case(
        "NodeDeviceNotReady",
        {
            'nodedevice_operator_not_ready{node="node-a",resource_name="example.com/gpu",reason="EndpointStopped"}': "1x20 _x10"
        },
        (14, 16, 27),
        "is not Ready: EndpointStopped",
        labels={**_GPU, "reason": "EndpointStopped"},
    ),
    Case(
        "NodeDeviceConflict",
        # by whichever operator leads
        {
            'nodedevice_operator_conflicts_by_node{node="node-a",resource_name="example.com/gpu",instance="a"}': "1x4 _x20",
            'nodedevice_operator_conflicts_by_node{node="node-a",resource_name="example.com/gpu",instance="b"}': "_x4 1x6 _x10",
        },
        (4, 6, 18),
        "example.com/gpu on node-a has the condition Conflict",
        labels=_GPU,
    ),
    Case(
        "NodeDeviceDriftRepeats",
        {'nodedevice_operator_drift_repairs_total{cause="changed"}': "0x5 1 2 3 4 5 5x45"},
        (7, 12, 50),
        "in half an hour (changed)",
        value="5",
        labels={"cause": "changed"},
    ),
    Case(
        "NodeDeviceConfigRefused",
        {
            'nodedevice_operator_configs{state="refused"}': "0x2 2x12 0x10",
            'nodedevice_operator_configs{state="pending"}': "3x30",
            'nodedevice_operator_configs{state="accepted"}': "7x30",
        },
        (11, 14, 20),
        "2 NodeDeviceConfigs have the state refused",
        value="2",
        labels={"state": "refused"},
    ),
    Case(
        "NodeDeviceConfigRefused",
        {'nodedevice_operator_configs{state="conflict"}': "1x12 0x10"},
        (9, 11, 20),
        "1 NodeDeviceConfigs have the state conflict",
        value="1",
        labels={"state": "conflict"},
    ),
    Case(
        "NodeDeviceCordonForgotten",
        # there is one for two weeks, though an operator and Prometheus are away now and then; and one that was lifted meanwhile
        {
            'nodedevice_operator_cordons{node="node-a",resource_name="example.com/gpu",instance="a"}': "1x150 _x7 1x183 _x9",
            'nodedevice_operator_cordons{node="node-a",resource_name="example.com/gpu",instance="b"}': "_x157 1x2 _x190",
            'nodedevice_operator_cordons{node="node-b",resource_name="example.com/gpu"}': "1x150 _x33 1x167",
        },
        (316 * 60, 337 * 60, 345 * 60),
        "Devices of example.com/gpu on node-a have been out of service for two weeks",
        every_minutes=60,
        severity="info",
        labels=_GPU,
    ),
    Case(
        "NodeDeviceNoneFree",
        {
            'nodedevice_operator_devices{resource_name="example.com/gpu",state="available"}': "0x40 1x10",
            'nodedevice_operator_devices{resource_name="example.com/gpu",state="healthy"}': "8x60",
            # nothing of it works, and others alert
            'nodedevice_operator_devices{resource_name="example.com/nic",state="available"}': "0x60",
            'nodedevice_operator_devices{resource_name="example.com/nic",state="healthy"}': "0x60",
            'nodedevice_operator_devices{resource_name="(other)",state="available"}': "0x60",
            'nodedevice_operator_devices{resource_name="(other)",state="healthy"}': "5x60",
        },
        (29, 31, 45),
        "No healthy device of example.com/gpu is free on any node",
        severity="info",
        labels={"resource_name": "example.com/gpu"},
    ),
    Case(
        "NodeDeviceOperatorNotLeading",
        # one stands by, and nobody leads until the other is back
        {
            'nodedevice_operator_leader{instance="a"}': "0x20",
            'nodedevice_operator_leader{instance="b"}': "1x2 0x10 1x8",
        },
        (6, 9, 15),
        "Capacity on the Nodes stands as it was last written",
        severity="critical",
    ),
    Case(
        "NodeDeviceOperatorNotLeading",
        # of one cluster the operator is away, and its agents are there
        {
            'nodedevice_operator_leader{cluster="east"}': "1x20",
            'nodedevice_operator_leader{cluster="west"}': "_x10 1x10",
            'nodedevice_agent_info{cluster="east",node="node-a"}': "1x20",
            'nodedevice_agent_info{cluster="west",node="node-b"}': "1x20",
        },
        (4, 6, 12),
        "Capacity on the Nodes stands as it was last written",
        labels={"cluster": "west"},
        severity="critical",
    ),
    Case(
        "NodeDeviceOperatorNotLeading",
        # nothing is scraped at all
        {'nodedevice_operator_leader{instance="a"}': "_x10 1x10"},
        (4, 6, 12),
        "Capacity on the Nodes stands as it was last written",
        severity="critical",
    ),
    Case(
        "NodeDeviceOperatorCannotWrite",
        {"nodedevice_operator_failing_nodes": "1x13 0x5"},
        (9, 11, 16),
        "1 Nodes could not be written",
        value="1",
    ),
    Case(
        "NodeDeviceAgentsSilent",
        {'nodedevice_operator_agents{state="silent"}': "2x8 0x10", 'nodedevice_operator_agents{state="alive"}': "5x18"},
        (4, 6, 11),
        "2 agents are silent",
        value="2",
        labels={"state": "silent"},
    ),
    Case(
        "NodeDeviceAgentsSilentTogether",
        {"nodedevice_operator_agents_silent_together": "0x1 9x4 0x10"},
        (1, 4, 8),
        "9 agents stopped renewing",
        value="9",
        severity="critical",
    ),
    Case(
        "NodeDevicePodsWaiting",
        {'nodedevice_agent_pods_waiting{node="node-a",resource_name="example.com/gpu"}': "1x13 0x5"},
        (9, 11, 16),
        "1 pods on node-a are pending without example.com/gpu",
        value="1",
        labels=_GPU,
    ),
    Case(
        "NodeDeviceContainersWithoutDevices",
        {'nodedevice_agent_containers_without_devices{node="node-a",resource_name="example.com/gpu"}': "0x1 1x4 0x5"},
        (1, 4, 8),
        "delete the pods that have notInjected",
        value="1",
        labels=_GPU,
        severity="critical",
    ),
    Case(
        "NodeDeviceOfferedTwice",
        {'nodedevice_agent_offered_twice{node="node-a",resource_name="example.com/gpu"}': "2x8 _x10"},
        (4, 6, 15),
        "2 devices of example.com/gpu on node-a are also offered by another resource",
        value="2",
        labels=_GPU,
    ),
    Case(
        "NodeDeviceRuntimeAway",
        # with another delivery the runtime may be away; node-a has an agent of the previous release, without the label delivery
        {
            'nodedevice_agent_runtime_connected{node="node-a",instance="a"}': "0x5 1x5",
            'nodedevice_agent_info{node="node-a",instance="a",runtime="nri"}': "1x10",
            'nodedevice_agent_runtime_connected{node="node-b",instance="b"}': "0x10",
            'nodedevice_agent_info{node="node-b",instance="b",delivery="kubelet",runtime="kubelet"}': "1x10",
        },
        (1, 3, 8),
        "On node-a no container that asks for a device can be created",
        labels={"node": "node-a", "instance": "a"},
        severity="critical",
    ),
    Case(
        "NodeDeviceAllocateFails",
        {'nodedevice_agent_allocate_failures_total{node="node-a",resource_name="example.com/gpu"}': "0x3 1 2 3 4 4x20"},
        (4, 8, 27),
        "Allocate calls to the plugin of example.com/gpu on node-a failed",
        value="4",
        labels=_GPU,
    ),
    Case(
        "NodeDeviceAgentWritesRefused",
        {
            'nodedevice_agent_api_writes_total{node="node-a",kind="Lease",outcome="ApiForbidden"}': "0x3 3 6 6x20",
            'nodedevice_agent_api_writes_total{node="node-a",kind="Lease",outcome="ApiUnreachable"}': "0+9x25",
        },
        (2, 6, 25),
        "Writes of Lease from node-a are refused (ApiForbidden)",
        labels={"node": "node-a", "kind": "Lease", "outcome": "ApiForbidden"},
    ),
    Case(
        "NodeDeviceCheckpointFailing",
        {'nodedevice_agent_checkpoint_failing{node="node-a"}': "0x2 1x6 0x5"},
        (4, 6, 10),
        "The agent of node-a cannot write its checkpoint",
        severity="critical",
        labels={"node": "node-a"},
    ),
    Case(
        "NodeDeviceCheckpointUnreadable",
        {'nodedevice_agent_checkpoint_unreadable{node="node-a"}': "0x2 1x3 0x5"},
        (2, 4, 8),
        "The agent of node-a kept its checkpoint aside",
        labels={"node": "node-a"},
    ),
    Case(
        "NodeDeviceExtenderNotActive",
        # one stands by, and the other is not active either for a while
        {
            'nodedevice_extender_active{instance="a"}': "0x20",
            'nodedevice_extender_active{instance="b"}': "1x2 0x10 1x8",
        },
        (6, 9, 15),
        "Pods that request resources with parts stay Pending",
        severity="critical",
    ),
    Case(
        "NodeDeviceExtenderNotActive",
        # all are gone, of one cluster
        {
            'nodedevice_extender_active{cluster="west"}': "1x2 _x100",
            'nodedevice_extender_active{cluster="east"}': "1x100",
        },
        (8, 20, 80),
        "Pods that request resources with parts stay Pending",
        labels={"cluster": "west"},
        severity="critical",
    ),
    Case(
        "NodeDeviceExtenderSlow",
        {
            'nodedevice_extender_request_seconds_bucket{verb="filter",le="1.0"}': "0+9x20 180x40",
            'nodedevice_extender_request_seconds_bucket{verb="filter",le="5.0"}': "0+10x20 200x40",
            'nodedevice_extender_request_seconds_bucket{verb="filter",le="+Inf"}': "0+10x20 200x40",
            'nodedevice_extender_request_seconds_bucket{verb="bind",le="+Inf"}': "0+10x60",
        },
        (8, 15, 45),
        "One in a hundred requests filter takes longer than a second",
        labels={"verb": "filter"},
    ),
    Case(
        "NodeDeviceExtenderBindConflicts",
        {
            "nodedevice_extender_bind_conflicts_total": "0x3 0+5x4 20x30",
            'nodedevice_extender_requests_total{verb="bind"}': "0x3 0+10x4 40x30",
        },
        (3, 8, 30),
        "binds in a quarter of an hour, more than a fifth of all",
        value="20",
    ),
    Case(
        "NodeDeviceExtenderBindsRefused",
        {
            'nodedevice_extender_api_writes_total{kind="pods/binding",verb="post",outcome="Denied"}': "0x3 0+1x4 4x30",
            # a pod that was bound by another scheduler, or is gone, is not reported
            'nodedevice_extender_api_writes_total{kind="pods/binding",verb="post",outcome="Conflict"}': "0+10x40",
        },
        (3, 8, 30),
        "binds in a quarter of an hour were refused (Denied)",
        value="4",
        labels={"outcome": "Denied"},
    ),
)
