"""Reasons that stop a pod on its way to a node, by precedence. Pure."""

from typing import Final

from kubectl_nodedevice.why.reasons import lines, rights
from kubectl_nodedevice.why.reasons.rights import Access, Role
from kubectl_nodedevice.why.reasons.row import Help, Line, Row

UNBOUND: Final = (
    # possible nodes
    Row(
        "NodeMissing",
        "Node {node} does not exist.",
        "Delete the pod, and create it again without nodeName, or with an existing node:",
        lines.DELETE_POD,
        of_node=Help(
            "Node {node} does not exist.",
            "Correct the name, or register the node again; list all nodes:",
            lines.NODES,
        ),
    ),
    Row(
        "NodeSelector",
        "Its selector or affinity excludes {on}.",
        "Label a node, or correct the pod; list the labels of the nodes:",
        Line("kubectl get nodes --show-labels", Role.FLEET_VIEW, rights.NODES),
    ),
    Row(
        "ClaimElsewhere",
        "Its claim is allocated on another node, which excludes {on}.",
        "Use that node or another claim; see where claims are allocated:",
        Line("kubectl get resourceclaims --namespace {namespace} --output yaml", Role.VIEW, rights.CLAIMS),
    ),
    Row(
        "NodeCordoned",
        "Cordoned by kubectl cordon: {on}.",
        "After its maintenance, uncordon it:",
        Line("kubectl uncordon {node}", Role.ADMIN, rights.PATCH_NODE),
    ),
    Row(
        "NodeNotReady",
        "The kubelet is not Ready on {on}.",
        "Read the cause in the node's conditions:",
        lines.NODE,
    ),
    Row(
        "NodeTaint",
        "It does not tolerate a taint of {on}.",
        "If the taint is obsolete, remove it, or add a toleration:",
        lines.UNTAINT,
        of_node=Help(
            "A taint of {on} keeps pods without a toleration off the node.",
            "If the taint is obsolete, remove it:",
            lines.UNTAINT,
        ),
    ),
    # the device manager of the resource on the node
    Row(
        "NodeLacks",
        "No node has all that it requests; something is missing on {on}.",
        "Request only what one node has; list the devices of the nodes:",
        lines.ALL_DEVICES,
    ),
    Row(
        "NoAgent",
        "No agent runs on {on}.",
        "Check the agent's pod, or start it:",
        lines.AGENT_POD,
    ),
    Row(
        "AgentSilent",
        "The agent is silent on {on}.",
        "Check its pod, and the node's clock and network:",
        lines.AGENT_POD,
    ),
    Row(
        "NotConfigured",
        "{resource} is not configured any more on {on}.",
        "Create the NodeDeviceConfig again, or correct its nodeSelector; list the existing ones:",
        Line("kubectl get nodedeviceconfigs", Role.FLEET_VIEW, Access("list", "nodedeviceconfigs", "nodedevice.io")),
    ),
    Row(
        "PluginAway",
        "The device plugin of {resource} is not connected on {on}.",
        "Start the plugin on the node; list the node's pods:",
        lines.PODS_OF_NODE,
    ),
    Row(
        "PlaceTaken",
        "The limit of resource names leaves no place for {resource} on {on}.",
        "Stop unneeded device plugins on the node; the message of Registered names one:",
        lines.NODE_DEVICE,
    ),
    Row(
        "NotInjectable",
        "Devices of {resource} cannot reach containers on {on}.",
        "The message of Injectable has the remedy:",
        lines.NODE_DEVICE,
    ),
    Row(
        "NodeDeviceInvalid",
        "No agent maintains the NodeDevice of {resource} on {on}.",
        "Delete it; the agent creates its own:",
        Line("kubectl delete nodedevice {node_device}", Role.ADMIN, Access("delete", "nodedevices", "nodedevice.io")),
    ),
    Row(
        "CapacityConflict",
        "Another client owns the capacity of {resource} on {on}.",
        "Stop that client; the operator then writes the capacity again. See the owners of the fields:",
        lines.OWNERS,
    ),
    Row(
        "PolicyRefuses",
        "The policy of required plugins keeps {resource} off {on}.",
        "The message of Advertised has the remedy:",
        lines.NODE_DEVICE,
    ),
    Row(
        "CapacityRefused",
        "The capacity of {resource} cannot be written on {on}.",
        "A policy, a webhook or the operator's role refuses it; read the message of Advertised:",
        lines.NODE_DEVICE,
    ),
    Row(
        "StrayCapacity",
        "A capacity of {resource} without a device plugin hides the DRA driver's devices on {on}.",
        "Remove the capacity, and delete pods that run without a device; see which client wrote it:",
        lines.OWNERS,
    ),
    # the node's devices
    Row(
        "NoDevices",
        "{resource} has no device on {on}.",
        "Connect a device, or correct the pattern in the configuration; read the agent's message:",
        lines.NODE_DEVICE,
    ),
    Row(
        "DevicesRefused",
        "Devices of {resource} are refused on {on}.",
        "Correct the device plugin, or its configuration; the message of Registered has each mistake:",
        lines.NODE_DEVICE,
    ),
    Row(
        "TooFewTogether",
        "It requests {count} of {resource}, which is more than {on} {has}.",
        "Request fewer, or add devices; list all devices:",
        lines.DEVICES,
        of_node=Help(
            "{resource} has no device on {on}.",
            "List its devices on other nodes:",
            lines.DEVICES,
        ),
    ),
    Row(
        "TooFewOnOneDevice",
        "{problem} on {on}.",
        "Request fewer, or wait until pods on one device have ended; list the free parts:",
        lines.DEVICES,
    ),
    Row(
        "DevicesCordoned",
        "Devices of {resource} are cordoned on {on}.",
        "Uncordon the devices that work again:",
        lines.UNCORDON,
        of_device=Help(
            "It is cordoned.",
            "If the device works again, uncordon it:",
            lines.UNCORDON,
        ),
    ),
    Row(
        "DevicesBroken",
        "Devices of {resource} are unhealthy on {on}.",
        "Read the cause and the remedy of one device:",
        Line("kubectl nodedevice why device {node} {device} --resource {resource}", Role.FLEET_VIEW, rights.FLEET),
        of_device=Help(
            "It is unhealthy.",
            "{device_remedy}; list the node's pods, with that of the plugin:",
            lines.PODS_OF_NODE,
        ),
    ),
    Row(
        "DevicesInOtherUse",
        "Devices of {resource} are in use in another way on {on}.",
        "They are free after those pods have ended; list them:",
        lines.NODES_DEVICES,
        of_device=Help(
            "It is in use in another way.",
            "It is free after those pods have ended; list them:",
            lines.NODES_DEVICES,
        ),
    ),
    Row(
        "PoolRefused",
        "The scheduler allocates no {resource} on {on}.",
        "The driver must publish the whole pool; read its ResourceSlices:",
        Line("kubectl get resourceslices --output yaml", Role.FLEET_VIEW, rights.SLICES),
    ),
    Row(
        "DevicesTainted",
        "Devices of {resource} are tainted on {on}.",
        "The driver removes its taints when the device works; list the taints:",
        Line("kubectl get resourceslices,devicetaintrules --output yaml", Role.ADMIN, rights.SLICES),
    ),
    Row(
        "HeldByPredecessor",
        "A pod that it replaces uses {resource} on {on}, and ends only when this one is Ready.",
        "Let {controller} end the old pod first ({way}):",
        Line(
            "kubectl patch {owner} --namespace {namespace} --patch {rollout_patch}",
            Role.EDIT,
            rights.in_namespace("patch", "deployments", "apps"),
        ),
    ),
    Row(
        "DevicesHeld",
        "Other pods use {resource} on {on}.",
        "It gets devices after enough of these pods have ended; list them:",
        lines.DEVICES,
        of_node=Help(
            "All devices of {resource} are in use on {on}.",
            "They are free after these pods have ended; list the devices and their pods:",
            lines.DEVICES,
        ),
        of_device=Help(
            "It is in use.",
            "It is free after its pod has ended; list the devices and their pods:",
            lines.DEVICES,
        ),
    ),
    Row(
        "CapacityBehind",
        "Available devices of {resource} are not shown yet by {on}.",
        "The operator writes the Node's capacity; check that it runs:",
        Line("kubectl nodedevice check", Role.FLEET_VIEW, rights.FLEET),
    ),
    Row(
        "NodeShowsFewer",
        "It requests {count} of {resource}, and fewer are shown by {on}.",
        "The logs of its device plugin may have the cause; read the Node's capacity:",
        lines.NODE,
        of_node=Help(
            "No device of {resource} is shown by {on}.",
            "The logs of its device plugin may have the cause; read the Node's capacity:",
            lines.NODE,
        ),
    ),
)
