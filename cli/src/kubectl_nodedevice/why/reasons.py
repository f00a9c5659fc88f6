"""The one table of what can stop a pod: codes, sentences, lines that help, and who may run them. Pure.

The order of the rows is the order of precedence: from the request to the container that runs. docs/reasons.md is made from it.
Placeholders of a sentence and of a line are fields of the finding; in a line each is quoted for a shell.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Role(StrEnum):
    """With which a person may run a line: roles of Kubernetes, and of the chart."""

    VIEW = "view"
    EDIT = "edit"
    FLEET_VIEW = "nodedevice-fleet-view"
    CORDON = "nodedevice-cordon"
    ADMIN = "cluster-admin"


# the namespace of the pod that is explained
OF_THE_POD: Final = "{namespace}"
_SYSTEM: Final = "nodedevice-system"


@dataclass(frozen=True, slots=True)
class Access:
    """What the API server is asked about the reader. namespace: OF_THE_POD, another one, or "" for all, and for what has none."""

    verb: str
    resource: str
    group: str = ""
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """code: stable, for scripts. meaning: for the docs. sentence: for people. line: that would help. needs: what the line does."""

    code: str
    meaning: str
    sentence: str
    advice: str
    line: str
    role: Role
    needs: Access


_ALL_PODS: Final = Access("list", "pods")
_SYSTEM_PODS: Final = Access("list", "pods", namespace=_SYSTEM)
_OWN_POD: Final = Access("get", "pods", namespace=OF_THE_POD)
_PATCH_POD: Final = Access("patch", "pods", namespace=OF_THE_POD)
_DELETE_POD: Final = Access("delete", "pods", namespace=OF_THE_POD)
_NODES: Final = Access("list", "nodes")
_PATCH_NODE: Final = Access("patch", "nodes")
_FLEET: Final = Access("list", "nodedevices", "nodedevice.io")
_CORDON: Final = Access("patch", "nodedevices", "nodedevice.io")
_CLASSES: Final = Access("list", "deviceclasses", "resource.k8s.io")
_SLICES: Final = Access("list", "resourceslices", "resource.k8s.io")
_CLAIMS: Final = Access("list", "resourceclaims", "resource.k8s.io", namespace=OF_THE_POD)

_DESCRIBE: Final = "kubectl describe pod {pod} --namespace {namespace}"
_DELETE: Final = "kubectl delete pod {pod} --namespace {namespace}"
_UNGATE: Final = """kubectl patch pod {pod} --namespace {namespace} --type json --patch {gates_patch}"""
_NODES_PODS: Final = "kubectl get pods --all-namespaces --output wide --field-selector spec.nodeName={node}"
_AGENT_PODS: Final = f"kubectl get pods --namespace {_SYSTEM} --output wide --field-selector spec.nodeName={{node}}"
_DEVICES: Final = "kubectl nodedevice devices {resource_options}"
_OWNERS: Final = "kubectl get node {node} --output yaml --show-managed-fields"
_QUOTA: Final = "kubectl describe resourcequota {quota} --namespace {namespace}"


TABLE: Final = (
    # before the scheduler sees the pod
    Row(
        "QuotaExceeded",
        "A ResourceQuota of the namespace refuses the pod, so that it is never made.",
        "{words}",
        "End a pod of the namespace that holds some, or have the quota raised:",
        _QUOTA,
        Role.VIEW,
        Access("get", "resourcequotas", namespace=OF_THE_POD),
    ),
    Row(
        "CreationRefused",
        "The API server refuses to make the pod, for a reason other than a quota.",
        "{words}",
        "Its controller has the words of whoever refused it:",
        "kubectl describe {owner} --namespace {namespace}",
        Role.VIEW,
        Access("list", "events", namespace=OF_THE_POD),
    ),
    Row(
        "PodFailed",
        "The pod has failed and is not started again, as when the kubelet refuses it.",
        "It has failed for good: {words}",
        "Delete it, and have it made again:",
        _DELETE,
        Role.EDIT,
        _DELETE_POD,
    ),
    Row(
        "PodDeleted",
        "The pod is being deleted.",
        "It is being deleted{since}.",
        "Its containers and finalizers are in:",
        _DESCRIBE,
        Role.VIEW,
        _OWN_POD,
    ),
    Row(
        "SchedulingGated",
        "A scheduling gate holds the pod back from the scheduler.",
        "Scheduling gates hold it back: {gates}.",
        "Whoever set a gate removes it, as a queue does when it is the pod's turn; by hand:",
        _UNGATE,
        Role.EDIT,
        _PATCH_POD,
    ),
    Row(
        "ClaimMissing",
        "The pod names a ResourceClaim, or a template of one, that does not exist in its namespace.",
        "{claim} does not exist in namespace {namespace}.",
        "Create it, or correct the pod; these exist:",
        "kubectl get resourceclaims,resourceclaimtemplates --namespace {namespace}",
        Role.VIEW,
        _CLAIMS,
    ),
    Row(
        "ClaimNotMade",
        "The ResourceClaim is not made of its template yet.",
        "The claim {claim} is not made of its template yet{words}.",
        "Why, is among the pod's Events:",
        _DESCRIBE,
        Role.VIEW,
        _OWN_POD,
    ),
    Row(
        "DeviceClassMissing",
        "A claim asks for a DeviceClass that does not exist.",
        "{claim} asks for the DeviceClass {device_class}, which does not exist{hint}.",
        "Install its driver's classes, or correct the claim; these exist:",
        "kubectl get deviceclasses",
        Role.FLEET_VIEW,
        _CLASSES,
    ),
    Row(
        "NothingServes",
        "No node has the resource, and no DeviceClass stands for it.",
        "No node has {resource}{hint}.",
        "Correct the name in the pod, or run its device plugin; the resources that there are:",
        "kubectl nodedevice devices",
        Role.FLEET_VIEW,
        _FLEET,
    ),
    Row(
        "NothingOffered",
        "No DRA driver has published a device of the class.",
        "No driver has published a device of the DeviceClass {device_class}{hint}.",
        "See whether its driver runs; what drivers have published:",
        "kubectl get resourceslices",
        Role.FLEET_VIEW,
        _SLICES,
    ),
    Row(
        "NoScheduler",
        "No scheduler has seen the pod: none serves its schedulerName, or it is not running.",
        "No scheduler has answered for {since}; its schedulerName is {scheduler}.",
        "See whether that scheduler runs, or delete the pod and correct schedulerName:",
        "kubectl get pods --all-namespaces --output wide --selector {scheduler_label}",
        Role.ADMIN,
        _ALL_PODS,
    ),
    # which nodes it may be on
    Row(
        "NodeSelector",
        "The pod's nodeSelector or required node affinity excludes the node.",
        "Its selector or affinity excludes {on}.",
        "Label a node so, or correct the pod; the labels of the nodes:",
        "kubectl get nodes --show-labels",
        Role.FLEET_VIEW,
        _NODES,
    ),
    Row(
        "ClaimElsewhere",
        "The claim is allocated already, and its devices are on another node.",
        "Its claim is allocated on another node, which excludes {on}.",
        "The pod needs that node, or another claim; where claims are allocated:",
        "kubectl get resourceclaims --namespace {namespace} --output yaml",
        Role.VIEW,
        _CLAIMS,
    ),
    Row(
        "NodeCordoned",
        "The node is cordoned as a whole (spec.unschedulable).",
        "Cordoned as a whole (kubectl cordon): {on}.",
        "When its maintenance is over:",
        "kubectl uncordon {node}",
        Role.ADMIN,
        _PATCH_NODE,
    ),
    Row(
        "NodeNotReady",
        "The node's kubelet is not Ready, or the control plane has tainted the node, as for want of memory.",
        "The kubelet is not Ready on {on}.",
        "What is wrong there is among its conditions:",
        "kubectl describe node {node}",
        Role.FLEET_VIEW,
        _NODES,
    ),
    Row(
        "NodeTaint",
        "The node has a taint that the pod does not tolerate.",
        "It does not tolerate a taint of {on}.",
        "Remove the taint when it has served its purpose, or add a toleration:",
        "kubectl taint node {node} {taint}-",
        Role.ADMIN,
        _PATCH_NODE,
    ),
    # who serves the resource there
    Row(
        "NodeLacks",
        "Each node lacks one of the resources or claims that the pod asks for together.",
        "No node has all that it asks for; something is missing on {on}.",
        "Have one pod ask for what one node has; what there is:",
        "kubectl nodedevice devices",
        Role.FLEET_VIEW,
        _FLEET,
    ),
    Row(
        "NoAgent",
        "The node's agent has no Lease: it does not run, or has never reached the API server.",
        "No agent on {on}.",
        "See the agent's pod, or start it:",
        _AGENT_PODS,
        Role.FLEET_VIEW,
        _SYSTEM_PODS,
    ),
    Row(
        "AgentSilent",
        "The node's agent has stopped renewing its Lease.",
        "The agent is silent on {on}.",
        "See its pod, and the node's clock and network:",
        _AGENT_PODS,
        Role.FLEET_VIEW,
        _SYSTEM_PODS,
    ),
    Row(
        "NotConfigured",
        "The built-in plugin was taken out of the configuration of the node.",
        "{resource} is not configured any more on {on}.",
        "Create the NodeDeviceConfig again, or have it select the node; those that exist:",
        "kubectl get nodedeviceconfigs",
        Role.FLEET_VIEW,
        Access("list", "nodedeviceconfigs", "nodedevice.io"),
    ),
    Row(
        "PluginAway",
        "The device plugin or DRA driver is not connected, or has not sent its devices yet.",
        "The device plugin of {resource} is away on {on}.",
        "Start the plugin on the node; its pods:",
        _NODES_PODS,
        Role.ADMIN,
        _ALL_PODS,
    ),
    Row(
        "NotInjectable",
        "Devices cannot reach containers on the node.",
        "Devices of {resource} cannot reach containers on {on}.",
        "The message of Injectable has the remedy:",
        "kubectl describe nodedevice {node_device}",
        Role.FLEET_VIEW,
        _FLEET,
    ),
    Row(
        "NodeDeviceInvalid",
        "The NodeDevice is not one that an agent keeps for this node.",
        "No agent keeps the NodeDevice of {resource} on {on}.",
        "Delete it; the agent creates its own:",
        "kubectl delete nodedevice {node_device}",
        Role.ADMIN,
        Access("delete", "nodedevices", "nodedevice.io"),
    ),
    Row(
        "CapacityConflict",
        "Another client writes the number of the resource on the Node, which the operator leaves to it.",
        "Another client owns the number of {resource} on {on}.",
        "Stop that client; the operator then takes the name back. Who wrote what:",
        _OWNERS,
        Role.FLEET_VIEW,
        _NODES,
    ),
    Row(
        "PolicyRefuses",
        "The resource is not in the policy of required plugins, so that the Node does not show it.",
        "The policy of required plugins keeps {resource} off {on}.",
        "The message of Advertised has the remedy:",
        "kubectl describe nodedevice {node_device}",
        Role.FLEET_VIEW,
        _FLEET,
    ),
    Row(
        "CapacityRefused",
        "The API server refuses the operator's write of the Node.",
        "The number of {resource} cannot be written on {on}.",
        "A policy, a webhook or the operator's role refuses it; the message of Advertised has its words:",
        "kubectl describe nodedevice {node_device}",
        Role.FLEET_VIEW,
        _FLEET,
    ),
    Row(
        "StrayCapacity",
        "Somebody wrote a number of the resource on a Node where a DRA driver offers it: pods there get no device.",
        "A number of {resource} that nobody serves hides the DRA driver's devices on {on}.",
        "Remove it, so that the scheduler makes a claim, and delete pods that run without a device; who wrote it:",
        _OWNERS,
        Role.FLEET_VIEW,
        _NODES,
    ),
    # which devices it has
    Row(
        "TooFewTogether",
        "The node has fewer devices of the resource than the pod asks for, however many are free.",
        "It asks for {count} of {resource}, which is more than {on} {has}.",
        "Ask for fewer, or add devices; all that there are:",
        _DEVICES,
        Role.FLEET_VIEW,
        _FLEET,
    ),
    Row(
        "TooFewOnOneDevice",
        "No physical device has as many parts free as one container asks for.",
        "No device has {most} of {resource} free on {on}.",
        "Ask for fewer, or wait until pods on one device have ended; what is free on each:",
        _DEVICES,
        Role.FLEET_VIEW,
        _FLEET,
    ),
    Row(
        "DevicesCordoned",
        "An administrator took devices out of service.",
        "Devices of {resource} are cordoned on {on}.",
        "Those that work again:",
        "kubectl nodedevice uncordon {node} --resource {resource} {device_options}",
        Role.CORDON,
        _CORDON,
    ),
    Row(
        "DevicesBroken",
        "Devices are unhealthy, or their plugin does not list them any more.",
        "Devices of {resource} are broken on {on}.",
        "What is wrong with one, and its remedy:",
        "kubectl nodedevice why device {node} {device} --resource {resource}",
        Role.FLEET_VIEW,
        _FLEET,
    ),
    Row(
        "DevicesInOtherUse",
        "Devices are given out in another way: under another resource, whole or in parts.",
        "Devices of {resource} are in use in another way on {on}.",
        "They are free when the pods that have them so have ended:",
        "kubectl nodedevice devices --node {node}",
        Role.FLEET_VIEW,
        _FLEET,
    ),
    Row(
        "DevicesTainted",
        "A DRA driver, or an administrator, tainted devices.",
        "Devices of {resource} are tainted on {on}.",
        "The driver takes its taints away when the device works; those that are set:",
        "kubectl get resourceslices,devicetaintrules --output yaml",
        Role.ADMIN,
        _SLICES,
    ),
    Row(
        "DevicesHeld",
        "Other pods hold the devices.",
        "Other pods hold {resource} on {on}.",
        "It gets devices when enough of these pods have ended:",
        _DEVICES,
        Role.FLEET_VIEW,
        _FLEET,
    ),
    Row(
        "CapacityBehind",
        "The Node shows fewer than are available, and nothing of the above is the reason.",
        "What is available of {resource} is not shown yet by {on}.",
        "The operator writes it; see whether it runs:",
        "kubectl nodedevice check",
        Role.FLEET_VIEW,
        _FLEET,
    ),
    Row(
        "NodeShowsFewer",
        "The Node shows fewer than the pod asks for, and what it has is not known: no agent shows it.",
        "It asks for {count} of {resource}, and fewer are shown by {on}.",
        "Whoever serves the resource there knows why; the numbers of the Node:",
        "kubectl describe node {node}",
        Role.FLEET_VIEW,
        _NODES,
    ),
    # on its node
    Row(
        "WaitsOnNode",
        "The pod is bound, and its node's agent cannot give it its devices yet.",
        "Bound to {node}, it waits for {resource}: {words}",
        "The agent tries again by itself; what its node has:",
        "kubectl nodedevice devices --node {node} {resource_options}",
        Role.FLEET_VIEW,
        _FLEET,
    ),
    Row(
        "WaitsForGood",
        "The pod is bound, and its node's agent will not try again.",
        "Bound to {node}, it will not get {resource}: {words}",
        "Delete it, and have it made again:",
        _DELETE,
        Role.EDIT,
        _DELETE_POD,
    ),
    Row(
        "RequiredPluginMissing",
        "The container runtime creates no container of the pod while the node's agent is not connected to it.",
        "The runtime of {node} waits for the agent: {words}",
        "See the agent's pod:",
        _AGENT_PODS,
        Role.FLEET_VIEW,
        _SYSTEM_PODS,
    ),
    Row(
        "ClaimNotPrepared",
        "The pod's claim is allocated, and its driver could not prepare the devices on the node.",
        "The driver on {node} could not prepare its devices: {words}",
        "The kubelet tries again within a minute or two; the driver's pods:",
        _NODES_PODS,
        Role.ADMIN,
        _ALL_PODS,
    ),
    Row(
        "NameKeptByKubelet",
        "The kubelet of the node still has the name of a device plugin that ended, and refuses the DRA driver's containers.",
        "The kubelet of {node} refuses the container: {words}",
        "Stop that kubelet, remove its device manager's checkpoint and start it; until then keep pods off the node:",
        "kubectl cordon {node}",
        Role.ADMIN,
        _PATCH_NODE,
    ),
    Row(
        "ImageNotPulled",
        "The image of a container cannot be pulled.",
        "The image of container {container} cannot be pulled: {words}",
        "Correct the image or its pull secret; the runtime's words are in:",
        _DESCRIBE,
        Role.VIEW,
        _OWN_POD,
    ),
    Row(
        "DeviceFileRefused",
        "A container that is not root may not open the file of its device, which belongs to a group of the host.",
        "Container {container} has its devices, and its user may not open them: {words}",
        "Give the pod the file's group, such as securityContext.supplementalGroups: [20]; the agent's log has the number:",
        f"kubectl logs --namespace {_SYSTEM} --selector app.kubernetes.io/component=agent --tail 1000",
        Role.ADMIN,
        Access("get", "pods/log", namespace=_SYSTEM),
    ),
    Row(
        "ContainerNotStarted",
        "A container does not start, or ends again and again, for a reason that is not about devices.",
        "Container {container} does not run: {words}",
        "Its own output:",
        "kubectl logs {pod} --namespace {namespace} --container {container}",
        Role.VIEW,
        Access("get", "pods/log", namespace=OF_THE_POD),
    ),
    Row(
        "RunsWithoutDevices",
        "A container runs without the devices that it asked for.",
        "Container {container} runs without {resource}{words}.",
        "Delete the pod, and have it made again:",
        _DELETE,
        Role.EDIT,
        _DELETE_POD,
    ),
)

BY_CODE: Final = {row.code: row for row in TABLE}
PRECEDENCE: Final = {row.code: index for index, row in enumerate(TABLE)}


def line_of(row: Row, fields: Mapping[str, str]) -> str:
    """The command, each field of it quoted; one that ends in `_options` is made of quoted words already."""
    quoted = {key: value if key.endswith("_options") else shlex.quote(value) for key, value in fields.items()}
    return row.line.format(**quoted).rstrip()
