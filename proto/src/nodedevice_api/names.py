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
    """Reasons of conditions, devices, pending pods and Events.

    The comment above a group names where its reasons appear. Each docstring has the meaning, then the remedy; the table of
    docs/troubleshooting.md is made from both.
    """

    # Registered
    ENDPOINT_RUNNING: Final = "EndpointRunning"
    """The device plugin is connected. Remedy: none."""
    ENDPOINT_STOPPED: Final = "EndpointStopped"
    """The device plugin disconnected, or does not respond. Remedy: Start it; it has to register again."""
    ENDPOINT_GONE: Final = "EndpointGone"
    """The device plugin has been away for five minutes. Remedy: Start it, if the node needs it."""
    NOT_CONFIGURED: Final = "NotConfigured"
    """The configuration no longer has this built-in plugin. Remedy: None; it ends with its last pod and cordon."""
    PLACE_TAKEN: Final = "PlaceTaken"
    """Another of the node's 256 resource names took its place. Remedy: Stop the plugin that registers so many names."""
    DEVICE_LIST_PENDING: Final = "DeviceListPending"
    """The device plugin has not sent a device list. Remedy: See the plugin's log."""
    DEVICES_REFUSED: Final = "DevicesRefused"
    """The agent rejected devices, such as duplicate IDs or too many. Remedy: Do what the message says."""
    SEVERAL_PLUGINS: Final = "SeveralPlugins"
    """Device plugins at different sockets serve the resource. Remedy: Stop all but one."""
    CORDONED_DEVICE_UNKNOWN: Final = "CordonedDeviceUnknown"
    """A cordon names a device that the plugin does not list. Remedy: Correct or remove the cordon."""
    CORDON_NOT_POSSIBLE: Final = "CordonNotPossible"
    """The kubelet or a DRA driver serves the resource. Remedy: Remove the cordon; do what the message says."""
    CHECKPOINT_UNREADABLE: Final = "CheckpointUnreadable"
    """A checkpoint was damaged; the agent rebuilt it. Remedy: Check the disk."""
    CHECKPOINT_NOT_WRITTEN: Final = "CheckpointNotWritten"
    """The checkpoint cannot be written. Remedy: Free space on the disk of `--state-dir` (`/var/lib/nodedevice`)."""
    # Registered, Injectable, Advertised
    SERVED_BY_KUBELET: Final = "ServedByKubelet"
    """Served by the kubelet's device manager; only shown here. Remedy: none."""
    SERVED_BY_DRA: Final = "ServedByDRA"
    """Served by a DRA driver; only shown here. Remedy: none."""
    # Registered (DRA)
    POOL_INCOMPLETE: Final = "PoolIncomplete"
    """The driver's pool lacks slices, or has too many. Remedy: See the driver's log."""
    # Healthy
    ALL_HEALTHY: Final = "AllHealthy"
    """Every device is healthy. Remedy: none."""
    SOME_UNHEALTHY: Final = "SomeDevicesUnhealthy"
    """Some devices are unhealthy. Remedy: See `status.devices`."""
    NONE_HEALTHY: Final = "NoHealthyDevices"
    """Every device is unhealthy, or no plugin is connected. Remedy: See `status.devices`, then Registered."""
    NO_DEVICES: Final = "NoDevices"
    """The device plugin lists no devices. Remedy: Connect a device, or correct `paths`."""
    # device
    REPORTED_UNHEALTHY: Final = "ReportedUnhealthy"
    """The plugin reports it unhealthy, without a reason. Remedy: See the plugin's log."""
    NOT_LISTED: Final = "NotListed"
    """It is in use, and its plugin no longer lists it. Remedy: Reconnect it, or delete its pod."""
    NOT_LISTED_YET: Final = "NotListedYet"
    """It is in use, and its plugin has listed nothing yet. Remedy: Wait, or see the plugin's log."""
    NOT_ALLOCATABLE: Final = "NotAllocatable"
    """The kubelet does not list it as allocatable. Remedy: See the plugin's log."""
    UNREAD: Final = "Unread"
    """A file that identifies it has been unreadable for a minute. Remedy: Correct the file in the message."""
    FLAPPING: Final = "Flapping"
    """Its health or presence changed three times within ten seconds. Remedy: Repair it; ten stable seconds end this."""
    DRIVER_RELEASED: Final = "DriverReleased"
    """NVIDIA's driver was released; pods keep the GPU. Remedy: Load the driver; end the request in the message."""
    IN_OTHER_USE: Final = "InOtherUse"
    """It is in use under another ID or resource, whole or in parts. Remedy: None; it recovers when that pod ends."""
    # Injectable
    RUNTIME_NONE: Final = "RuntimeNone"
    """The agent injects nothing (`--delivery none`). Remedy: Use `--delivery auto`."""
    RUNTIME_CONNECTED: Final = "RuntimeConnected"
    """The agent is connected to the container runtime by NRI. Remedy: none."""
    NO_VALIDATOR: Final = "NoDefaultValidator"
    """NRI's default validator is off: containers could start without devices.

    Remedy: Enable it as in docs/install.md.
    """
    RUNTIME_DISCONNECTED: Final = "RuntimeDisconnected"
    """The container runtime has been away for `--runtime-grace-seconds`. Remedy: Start it."""
    NO_RUNTIME: Final = "NoRuntimeSocket"
    """The agent has found no NRI socket since its start.

    Remedy: Enable NRI, mount its socket, or correct `--nri-socket`.
    """
    DEVICES_NOT_INJECTED: Final = "DevicesNotInjected"
    """Containers run without their devices. Remedy: Delete their pods."""
    DEVICES_IN_USE_AFTER_RELEASE: Final = "DevicesInUseAfterRelease"
    """Containers still use released devices. Remedy: Run `crictl stop ID`."""
    DEVICES_RENUMBERED: Final = "DevicesRenumbered"
    """Containers hold device files with stale numbers. Remedy: Restart the named containers."""
    KUBELET_REGISTERED: Final = "RegisteredWithKubelet"
    """The kubelet serves pods with the agent's devices. Remedy: none."""
    KUBELET_UNREACHABLE: Final = "KubeletUnreachable"
    """The kubelet's registration socket does not respond. Remedy: Start the kubelet; check `--kubelet-dir`."""
    KUBELET_REFUSED: Final = "KubeletRefused"
    """The kubelet rejected the registration. Remedy: Do what the message says."""
    KUBELET_LIST_TOO_BIG: Final = "KubeletListTooBig"
    """The kubelet takes no device list of that size. Remedy: List fewer devices, or use `nri`."""
    KUBELET_CANNOT_SERVE: Final = "KubeletCannotCall"
    """The agent cannot create a socket in the kubelet's directory. Remedy: Make the directory writable."""
    NOTHING_FOR_KUBELET: Final = "NothingForKubelet"
    """No device list or no cordons are known. Remedy: See Registered."""
    # WatchesCurrent
    WATCHES_CURRENT: Final = "WatchesCurrent"
    """The agent's watches are current. Remedy: none."""
    WATCH_STALE: Final = "WatchStale"
    """The API server sends nothing over a watch for 90 s.

    Remedy: Check proxies: they must not buffer or end watches.
    """
    # OfferedTwice
    OFFERED_TWICE: Final = "OfferedTwice"
    """Another resource of the node offers the same device. Remedy: Switch off the one in the message."""
    # Advertised
    ADVERTISED: Final = "Advertised"
    """The Node shows the resource. Remedy: none."""
    BY_KUBELET: Final = "ByKubelet"
    """The kubelet writes the capacity (`--delivery kubelet`). Remedy: If it is False, see Injectable."""
    FREE_WITHDRAWN: Final = "FreeDevicesWithdrawn"
    """The agent is away; only devices in use are advertised. Remedy: Start the agent."""
    NOT_INJECTABLE: Final = "NotInjectable"
    """Devices cannot reach containers; only devices in use are advertised. Remedy: See Injectable."""
    NOT_ADVERTISED: Final = "NotAdvertised"
    """No agent reported this NodeDevice; it was created by hand. Remedy: Delete it, or run its device plugin."""
    POLICY_PENDING: Final = "PolicyPending"
    """The policy of required plugins lacks the name. Remedy: If it lasts, see the operator's log."""
    TOO_MANY_NAMES: Final = "TooManyNames"
    """The policy of required plugins has no room for the name. Remedy: Delete unused NodeDevices."""
    NAME_RESERVED: Final = "NameReserved"
    """Kubernetes reserves such names. Remedy: Give the plugin another name."""
    NAME_EXCLUDED: Final = "NameExcluded"
    """`requiredPlugins.names` does not contain the name. Remedy: Add it, or a pattern such as `vendor.com/*`."""
    WRITE_REFUSED: Final = "WriteRefused"
    """The API server refuses the resource on the Node. Remedy: Correct the policy or role in the message."""
    UPDATE_REFUSED: Final = "UpdateRefused"
    """The API server refuses a new number on the Node. Remedy: Correct the policy or role in the message."""
    NODE_MISSING: Final = "NodeMissing"
    """No Node has the name and UID of the owner. Remedy: Delete the NodeDevice."""
    WRONG_NAME: Final = "WrongName"
    """The NodeDevice was created by hand under a wrong name. Remedy: Delete it."""
    # Conflict
    NO_CONFLICT: Final = "NoConflict"
    """No other field manager owns the resource on the Node. Remedy: none."""
    FOREIGN_OWNER: Final = "ForeignOwner"
    """Another field manager set the resource on the Node first.

    Remedy: Stop the named writer; for `kubelet`, see docs/delivery.md.
    """
    CHANGED_REPEATEDLY: Final = "ChangedRepeatedly"
    """Another client keeps changing the number; the operator pauses. Remedy: Stop the named writer."""
    # AgentReady
    LEASE_RENEWED: Final = "LeaseRenewed"
    """The agent renews its Lease. Remedy: none."""
    LEASE_EXPIRED: Final = "LeaseExpired"
    """The agent has not renewed its Lease for a minute. Remedy: Check its pod, clock and network."""
    LEASES_EXPIRED_TOGETHER: Final = "LeasesExpiredTogether"
    """Many agents stopped renewing together. Remedy: Check the API server and the network."""
    LEASE_MISSING: Final = "LeaseMissing"
    """The agent has no Lease. Remedy: Start it; check `--leases-namespace` of both programs."""
    # Ready
    READY: Final = "Ready"
    """Pods find all they need. Remedy: none."""
    ALL_CORDONED: Final = "AllCordoned"
    """Every device is cordoned. Remedy: Uncordon working devices."""
    # pending pod
    NOT_ENOUGH_DEVICES: Final = "NotEnoughDevices"
    """Fewer devices are free than the container requests. Remedy: Wait, or delete pods that use them."""
    DEVICE_UNCONFIRMED: Final = "DeviceUnconfirmed"
    """The agent cannot identify a device. Remedy: Correct the file in the message."""
    NO_DEVICE_FITS: Final = "NoDeviceFits"
    """No physical device has enough free parts. Remedy: Wait; prevent it by docs/gpu-sharing.md."""
    CORDONS_NOT_SYNCED: Final = "CordonsNotSynced"
    """The agent has not read the cordons. Remedy: Check the API server."""
    ALLOCATIONS_OMITTED: Final = "AllocationsOmitted"
    """Checkpoint and some allocations were lost. Remedy: Delete all pods with this reason."""
    ALLOCATE_FAILED: Final = "AllocateFailed"
    """The device plugin refused, or did not respond. Remedy: See its log; do what the message says."""
    CHANGED_REQUEST: Final = "ChangedRequest"
    """The container's limit changed after its allocation. Remedy: Delete the pod."""
    TOPOLOGY_AFFINITY: Final = "TopologyAffinity"
    """No devices are free on nearby NUMA nodes. Remedy: Free some, or change `--topology-policy`."""
    # pod
    PRE_START_FAILED: Final = "PreStartFailed"
    """The device plugin could not prepare the devices. Remedy: See the plugin's log."""


class ConfigCondition:
    """Types of conditions of a NodeDeviceConfig."""

    ACCEPTED: Final = "Accepted"
    CONFLICT: Final = "Conflict"
    DEVICES_FOUND: Final = "DevicesFound"


class ConfigReason:
    """Reasons of these, and of Events about them. Documented as Reason."""

    # NodeDeviceConfig: Accepted
    TAKEN: Final = "Taken"
    """Every agent that it selects has applied it. Remedy: none."""
    REFUSED: Final = "Refused"
    """An agent refuses it whole; nothing of it is served there. Remedy: Correct what the message names."""
    # NodeDeviceConfig: Accepted, DevicesFound
    PENDING: Final = "Pending"
    """Some agents have not applied it, or not scanned for devices. Remedy: Wait; check agents that are away."""
    NO_NODES: Final = "NoNodes"
    """It selects no node that has an agent.

    Remedy: Compare `spec.nodeSelector` with `kubectl get nodes --show-labels`.
    """
    # NodeDeviceConfig: Conflict
    RESOURCE_TAKEN: Final = "ResourceTaken"
    """Another configuration has one of its resources. Remedy: Raise `spec.priority`, or name the resource once."""
    RESOURCE_WON: Final = "ResourceWon"
    """Another configuration names one of its resources. Remedy: none."""
    NO_OTHER: Final = "NoOther"
    """No other configuration names its resources. Remedy: none."""
    # NodeDeviceConfig: DevicesFound
    FOUND: Final = "Found"
    """Each group has a device. Remedy: none."""
    NO_MATCH: Final = "NoMatch"
    """A group has no device on any selected node. Remedy: Connect the device, or correct path or selection."""


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
