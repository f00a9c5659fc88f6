"""Every name that two processes, or a process and a person, must spell alike.

Nothing here does anything but build names. The API itself is in crds/.
"""

import hashlib
import re
from typing import Final

GROUP: Final = "nodedevice.io"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

NODE_DEVICE: Final = "NodeDevice"
NODE_DEVICES: Final = "nodedevices"
NODE_DEVICE_CONFIG: Final = "NodeDeviceConfig"
NODE_DEVICE_CONFIGS: Final = "nodedeviceconfigs"
POD_DEVICE: Final = "PodDevice"
POD_DEVICES: Final = "poddevices"

# Server-side apply owners. No field has two of them.
AGENT_FIELD_MANAGER: Final = "nodedevice-agent"
OPERATOR_FIELD_MANAGER: Final = "nodedevice-operator"
# Of cordons that the operator sets again, after the object that they were set on was deleted.
CORDONS_FIELD_MANAGER: Final = "nodedevice-cordons"

# Where the agents' Leases live, one per node and named as the node; nothing else is in this namespace.
AGENTS_NAMESPACE: Final = "nodedevice-agents"
AGENT_LEASE_SECONDS: Final = 60
# On a Lease: registrations of device plugins that its agent refused lately, a line each.
REFUSALS_ANNOTATION: Final = f"{GROUP}/refused-registrations"
# On the same Lease: what became of each NodeDeviceConfig that selects the node.
CONFIGS_ANNOTATION: Final = f"{GROUP}/configs"
# A label, "true" on that Lease while its agent refuses one of them: such Leases can be watched without every renewal of all others.
CONFIG_REFUSED_LABEL: Final = f"{GROUP}/config-refused"

# The chart's default namespace, and the Lease there that elects the leading operator.
SYSTEM_NAMESPACE: Final = "nodedevice-system"
OPERATOR_LEASE: Final = "nodedevice-operator"
EXTENDER_LEASE: Final = "nodedevice-extender"

# status.agent.delivery: how devices reach containers. With kubelet the kubelet allocates, and so counts capacity itself.
DELIVERY_KUBELET: Final = "kubelet"
DELIVERY_NRI: Final = "nri"
DELIVERY_NONE: Final = "none"
DELIVERIES: Final = (DELIVERY_NRI, DELIVERY_KUBELET, DELIVERY_NONE)

# status.agent.servedBy: who gives the devices out; what others do is only shown
SERVED_BY_NODEDEVICE: Final = "nodedevice"
SERVED_BY_KUBELET: Final = "kubelet"
SERVED_BY_DRA: Final = "dra"
ONLY_SHOWN: Final = frozenset({SERVED_BY_KUBELET, SERVED_BY_DRA})

# Our own DRA driver. Its slices are published from NodeDevices, and never observed.
DRA_DRIVER: Final = GROUP

# A cordon with one of these IDs takes the whole resource on that node out of service; the word needs no quotes in a shell.
ALL_DEVICES: Final = "*"
ALL_DEVICES_WORD: Final = "all"

# On a CRD: the release whose chart or program put it there, such as 0.1.0.
RELEASE_ANNOTATION: Final = f"{GROUP}/release"

# The agent's name at NRI, and the annotation that lets a runtime create a container only while such plugins are registered.
NRI_PLUGIN: Final = "nodedevice"
REQUIRED_PLUGINS_ANNOTATION: Final = "required-plugins.noderesource.dev"
# On a pod that requests parts of GPUs: percent of a GPU's multiprocessors for each of its containers.
SM_PERCENT_ANNOTATION: Final = f"{GROUP}/sm-percent"
# On a bound pod: the parts that the scheduler extender has assigned to it, see assigned_parts.
ASSIGNED_PARTS_ANNOTATION: Final = f"{GROUP}/assigned-parts"
# On a container in the runtime: the devices it was created with, as fingerprints.
CONTAINER_DEVICES_ANNOTATION: Final = f"{GROUP}/devices"


class Condition:
    """Condition types of a NodeDevice. Each has exactly one writer."""

    # the agent's
    REGISTERED: Final = "Registered"
    HEALTHY: Final = "Healthy"
    INJECTABLE: Final = "Injectable"
    WATCHES_CURRENT: Final = "WatchesCurrent"
    OFFERED_TWICE: Final = "OfferedTwice"
    # the operator's
    ADVERTISED: Final = "Advertised"
    CONFLICT: Final = "Conflict"
    AGENT_READY: Final = "AgentReady"
    READY: Final = "Ready"


AGENT_CONDITIONS: Final = (
    Condition.REGISTERED,
    Condition.HEALTHY,
    Condition.INJECTABLE,
    Condition.WATCHES_CURRENT,
    Condition.OFFERED_TWICE,
)
OPERATOR_CONDITIONS: Final = (Condition.ADVERTISED, Condition.CONFLICT, Condition.AGENT_READY, Condition.READY)


class Reason:
    """Reasons of conditions, devices, waiting pods and Events: one word for machines, next to a sentence for people."""

    # Registered
    ENDPOINT_RUNNING: Final = "EndpointRunning"
    """The device plugin is connected and has sent its devices."""
    ENDPOINT_STOPPED: Final = "EndpointStopped"
    """The device plugin's connection ended, or it does not answer; its devices are kept for the grace period of five minutes."""
    ENDPOINT_GONE: Final = "EndpointGone"
    """The device plugin did not come back within the grace period."""
    NOT_CONFIGURED: Final = "NotConfigured"
    """The agent ended the built-in plugin, which nothing configures on this node any more."""
    PLACE_TAKEN: Final = "PlaceTaken"
    """A node has 256 resource names at most, and another one has its place; the agent ended it."""
    DEVICE_LIST_PENDING: Final = "DeviceListPending"
    """The device plugin registered and has not sent its devices yet."""
    DEVICES_REFUSED: Final = "DevicesRefused"
    """A part of the plugin's list was not taken, such as an ID that occurs twice."""
    SEVERAL_PLUGINS: Final = "SeveralPlugins"
    """Device plugins at different sockets serve the resource; the newest list counts."""
    CORDONED_DEVICE_UNKNOWN: Final = "CordonedDeviceUnknown"
    """A cordon names a device that the plugin does not list."""
    CORDON_NOT_POSSIBLE: Final = "CordonNotPossible"
    """The kubelet serves the resource, so a cordon has no effect."""
    CHECKPOINT_UNREADABLE: Final = "CheckpointUnreadable"
    """The agent's checkpoint was damaged, and was rebuilt."""
    CHECKPOINT_NOT_WRITTEN: Final = "CheckpointNotWritten"
    """The agent's checkpoint cannot be written, as on a full disk; allocations go on while its journal has room."""
    # Registered, Injectable, Advertised
    SERVED_BY_KUBELET: Final = "ServedByKubelet"
    """The kubelet's own device manager serves the resource; it is only shown."""
    SERVED_BY_DRA: Final = "ServedByDRA"
    """A DRA driver offers the devices, and the scheduler gives them out by claims; they are only shown."""
    # Registered, of what a DRA driver offers
    POOL_INCOMPLETE: Final = "PoolIncomplete"
    """The driver has published fewer slices of its pool's newest generation than it says, or more."""
    # Healthy
    ALL_HEALTHY: Final = "AllHealthy"
    """Every device is healthy."""
    SOME_UNHEALTHY: Final = "SomeDevicesUnhealthy"
    """Some devices are not healthy."""
    NONE_HEALTHY: Final = "NoHealthyDevices"
    """No device is healthy, or no plugin is connected."""
    NO_DEVICES: Final = "NoDevices"
    """The device plugin lists no devices."""
    # a device
    REPORTED_UNHEALTHY: Final = "ReportedUnhealthy"
    """Its plugin reports it so, and gives no reason."""
    NOT_LISTED: Final = "NotListed"
    """A container holds it, and its plugin no longer lists it."""
    NOT_LISTED_YET: Final = "NotListedYet"
    """A container holds it, and its plugin has listed no device since it registered."""
    NOT_ALLOCATABLE: Final = "NotAllocatable"
    """The kubelet no longer counts it among its allocatable devices."""
    FLAPPING: Final = "Flapping"
    """It changed too often within seconds, and counts as unhealthy until it is stable."""
    DRIVER_RELEASED: Final = "DriverReleased"
    """The driver was closed on request, to be replaced; the GPU is not read until the request ends. Its pod keeps it."""
    IN_OTHER_USE: Final = "InOtherUse"
    """It is allocated in another way: under another ID or resource, or its physical device whole, in parts, or in instances."""
    # Injectable
    RUNTIME_NONE: Final = "RuntimeNone"
    """The agent injects nothing, as `--delivery none` says."""
    RUNTIME_CONNECTED: Final = "RuntimeConnected"
    """The agent is registered with the container runtime by NRI."""
    NO_VALIDATOR: Final = "NoDefaultValidator"
    """Containers could start without their devices while the agent is away: NRI's default validator is off or missing."""
    RUNTIME_DISCONNECTED: Final = "RuntimeDisconnected"
    """The container runtime has been disconnected for too long."""
    NO_RUNTIME: Final = "NoRuntimeSocket"
    """There was no NRI socket since the agent's start."""
    DEVICES_NOT_INJECTED: Final = "DevicesNotInjected"
    """Containers run without the devices that were allocated to them."""
    DEVICES_IN_USE_AFTER_RELEASE: Final = "DevicesInUseAfterRelease"
    """Containers still use devices that were released."""
    DEVICES_RENUMBERED: Final = "DevicesRenumbered"
    """Device files of containers are not their devices' any more, which were plugged in again under another number."""
    KUBELET_REGISTERED: Final = "RegisteredWithKubelet"
    """The kubelet gives the devices to containers, on behalf of the agent."""
    KUBELET_UNREACHABLE: Final = "KubeletUnreachable"
    """The kubelet's registration socket does not answer."""
    KUBELET_REFUSED: Final = "KubeletRefused"
    """The kubelet refused the registration of the resource."""
    KUBELET_LIST_TOO_BIG: Final = "KubeletListTooBig"
    """The list of devices is longer than the kubelet accepts."""
    KUBELET_CANNOT_SERVE: Final = "KubeletCannotCall"
    """The agent cannot serve a socket for the kubelet."""
    NOTHING_FOR_KUBELET: Final = "NothingForKubelet"
    """The plugin has listed no devices yet, or the cordons are not known yet, so the kubelet has nothing of it."""
    # WatchesCurrent
    WATCHES_CURRENT: Final = "WatchesCurrent"
    """The API server's watches work."""
    WATCH_STALE: Final = "WatchStale"
    """The API server sends nothing over a watch of the agent."""
    # OfferedTwice
    OFFERED_TWICE: Final = "OfferedTwice"
    """Another resource of the node also offers a device, so that it can be allocated twice."""
    # Advertised
    ADVERTISED: Final = "Advertised"
    """The Node shows the resource."""
    BY_KUBELET: Final = "ByKubelet"
    """The kubelet counts the resource, as with `--delivery kubelet`."""
    FREE_WITHDRAWN: Final = "FreeDevicesWithdrawn"
    """The agent has been silent for too long: only devices in use are advertised."""
    NOT_INJECTABLE: Final = "NotInjectable"
    """Devices cannot reach containers: only devices in use are advertised."""
    NOT_ADVERTISED: Final = "NotAdvertised"
    """No agent has reported the resource."""
    POLICY_PENDING: Final = "PolicyPending"
    """Its name is not in the policy yet that makes pods wait for the agent."""
    TOO_MANY_NAMES: Final = "TooManyNames"
    """The policy that makes pods wait for the agent has no room for its name."""
    NAME_RESERVED: Final = "NameReserved"
    """Kubernetes keeps such names for itself, so that no Node shows it as a resource from here."""
    NAME_EXCLUDED: Final = "NameExcluded"
    """`requiredPlugins.names` does not contain its name."""
    WRITE_REFUSED: Final = "WriteRefused"
    """The API server refuses to have it on the Node."""
    UPDATE_REFUSED: Final = "UpdateRefused"
    """The API server refuses to change its number on the Node."""
    NODE_MISSING: Final = "NodeMissing"
    """No Node of that name is the owner of the NodeDevice."""
    WRONG_NAME: Final = "WrongName"
    """The NodeDevice was created by hand, under another name than its node and resource give."""
    # Conflict
    NO_CONFLICT: Final = "NoConflict"
    """No other field manager owns the resource on the Node."""
    FOREIGN_OWNER: Final = "ForeignOwner"
    """Another field manager set the resource on the Node first."""
    CHANGED_REPEATEDLY: Final = "ChangedRepeatedly"
    """Another client changed the number three times within a minute; the operator pauses."""
    # AgentReady
    LEASE_RENEWED: Final = "LeaseRenewed"
    """The agent renews its Lease."""
    LEASE_EXPIRED: Final = "LeaseExpired"
    """The agent has not renewed its Lease for a minute."""
    LEASES_EXPIRED_TOGETHER: Final = "LeasesExpiredTogether"
    """Many agents stopped renewing their Leases together; nothing is withdrawn."""
    LEASE_MISSING: Final = "LeaseMissing"
    """The agent has no Lease."""
    # Ready
    READY: Final = "Ready"
    """A pod finds all that it needs."""
    ALL_CORDONED: Final = "AllCordoned"
    """An administrator cordoned every device."""
    # a pod that waits
    NOT_ENOUGH_DEVICES: Final = "NotEnoughDevices"
    """Fewer devices are available on the node than the container requests."""
    DEVICE_UNCONFIRMED: Final = "DeviceUnconfirmed"
    """The agent cannot read whether a device is still the same one; after a minute it counts as missing or unhealthy."""
    NO_DEVICE_FITS: Final = "NoDeviceFits"
    """No physical device has enough parts free."""
    CORDONS_NOT_SYNCED: Final = "CordonsNotSynced"
    """The agent has not read the cordons yet."""
    ALLOCATIONS_OMITTED: Final = "AllocationsOmitted"
    """The checkpoint was lost, and the NodeDevice had room for a part of the allocations."""
    ALLOCATE_FAILED: Final = "AllocateFailed"
    """The device plugin refused the Allocate call, or did not answer."""
    CHANGED_REQUEST: Final = "ChangedRequest"
    """The container's limit was changed after it had got devices."""
    TOPOLOGY_AFFINITY: Final = "TopologyAffinity"
    """The topology policy finds no devices on nearby NUMA nodes."""
    # a pod that has its devices
    PRE_START_FAILED: Final = "PreStartFailed"
    """The device plugin could not prepare the devices before the container's start."""


class ConfigCondition:
    """Types of conditions of a NodeDeviceConfig."""

    ACCEPTED: Final = "Accepted"
    CONFLICT: Final = "Conflict"
    DEVICES_FOUND: Final = "DevicesFound"


class ConfigReason:
    """Reasons of these, and of Events about them."""

    TAKEN: Final = "Taken"
    REFUSED: Final = "Refused"
    PENDING: Final = "Pending"
    NO_NODES: Final = "NoNodes"
    RESOURCE_TAKEN: Final = "ResourceTaken"
    RESOURCE_WON: Final = "ResourceWon"
    NO_OTHER: Final = "NoOther"
    FOUND: Final = "Found"
    NO_MATCH: Final = "NoMatch"


# Reasons of Advertised with which the operator never writes the name on the Node: the kubelet counts it, or nobody does.
NEVER_WRITTEN: Final = frozenset(
    {Reason.BY_KUBELET, Reason.SERVED_BY_KUBELET, Reason.SERVED_BY_DRA, Reason.NAME_RESERVED}
)

_PLAIN_NODE = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_PLAIN_RESOURCE = re.compile(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?/[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LOOKS_HASHED = re.compile(r".*-[0-9a-f]{8}")
_MAX_NAME = 253


def node_device_name(node_name: str, resource_name: str) -> str:
    """Name of the NodeDevice of one resource on one node, at most 253 characters; equal inputs, equal name.

    `node-a` and `example.com/gpu` give `node-a.example.com.gpu`. If that would lose something (a node name with a
    dot, capitals or underscores in the resource, too long) eight digits of a hash of both follow, so that two pairs never
    share a name; also where it ends as if they did already, so that no plugin can ask for another's name.
    """
    slug = f"{node_name}.{resource_name.replace('/', '.')}"
    lossless = _PLAIN_NODE.fullmatch(node_name) and _PLAIN_RESOURCE.fullmatch(resource_name)
    if lossless and len(slug) <= _MAX_NAME and not _LOOKS_HASHED.fullmatch(slug):
        return slug
    digest = hashlib.sha256(f"{node_name}\0{resource_name}".encode()).hexdigest()[:8]
    plain = re.sub(r"[^a-z0-9.-]", "-", slug.lower())[: _MAX_NAME - 9]
    # a cut, or a replaced character, may leave a label that begins or ends with a dash
    plain = ".".join(filter(None, (label.strip("-") for label in plain.split("."))))
    return f"{plain}-{digest}"
