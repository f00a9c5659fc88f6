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

# Where the chart is meant to be installed, and the Lease there by which operators agree on who leads.
SYSTEM_NAMESPACE: Final = "nodedevice-system"
OPERATOR_LEASE: Final = "nodedevice-operator"
EXTENDER_LEASE: Final = "nodedevice-extender"

# status.agent.runtime; where it is the kubelet's, the kubelet allocates, and so counts capacity itself
RUNTIME_KUBELET: Final = "kubelet"
RUNTIME_NRI: Final = "nri"

# status.agent.servedBy: whose device manager gives the devices out
SERVED_BY_NODEDEVICE: Final = "nodedevice"
SERVED_BY_KUBELET: Final = "kubelet"

# A cordon with one of these IDs takes the whole resource on that node out of service; the word needs no quotes in a shell.
ALL_DEVICES: Final = "*"
ALL_DEVICES_WORD: Final = "all"

# On a CRD: the release whose chart or program put it there, such as 0.1.0.
RELEASE_ANNOTATION: Final = f"{GROUP}/release"

# As the agent registers with NRI, and the annotation by which a runtime creates a container only while such plugins are there.
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
)
OPERATOR_CONDITIONS: Final = (Condition.ADVERTISED, Condition.CONFLICT, Condition.AGENT_READY, Condition.READY)


class Reason:
    """Reasons of conditions, devices, waiting pods and Events: one word for machines, beside a sentence for people."""

    # Registered
    ENDPOINT_RUNNING: Final = "EndpointRunning"
    ENDPOINT_STOPPED: Final = "EndpointStopped"
    ENDPOINT_GONE: Final = "EndpointGone"
    DEVICE_LIST_PENDING: Final = "DeviceListPending"
    DEVICES_REFUSED: Final = "DevicesRefused"
    SEVERAL_PLUGINS: Final = "SeveralPlugins"
    CORDONED_DEVICE_UNKNOWN: Final = "CordonedDeviceUnknown"
    CORDON_NOT_POSSIBLE: Final = "CordonNotPossible"
    CHECKPOINT_UNREADABLE: Final = "CheckpointUnreadable"
    # Healthy
    ALL_HEALTHY: Final = "AllHealthy"
    SOME_UNHEALTHY: Final = "SomeDevicesUnhealthy"
    NONE_HEALTHY: Final = "NoHealthyDevices"
    NO_DEVICES: Final = "NoDevices"
    # a device
    REPORTED_UNHEALTHY: Final = "ReportedUnhealthy"
    NOT_LISTED: Final = "NotListed"
    NOT_ALLOCATABLE: Final = "NotAllocatable"
    FLAPPING: Final = "Flapping"
    IN_OTHER_USE: Final = "InOtherUse"
    # Injectable
    RUNTIME_NONE: Final = "RuntimeNone"
    RUNTIME_CONNECTED: Final = "RuntimeConnected"
    NO_VALIDATOR: Final = "NoDefaultValidator"
    RUNTIME_DISCONNECTED: Final = "RuntimeDisconnected"
    NO_RUNTIME: Final = "NoRuntimeSocket"
    DEVICES_NOT_INJECTED: Final = "DevicesNotInjected"
    DEVICES_IN_USE_AFTER_RELEASE: Final = "DevicesInUseAfterRelease"
    KUBELET_REGISTERED: Final = "RegisteredWithKubelet"
    KUBELET_UNREACHABLE: Final = "KubeletUnreachable"
    KUBELET_REFUSED: Final = "KubeletRefused"
    KUBELET_LIST_TOO_BIG: Final = "KubeletListTooBig"
    KUBELET_CANNOT_SERVE: Final = "KubeletCannotCall"
    NOTHING_FOR_KUBELET: Final = "NothingForKubelet"
    # WatchesCurrent
    WATCHES_CURRENT: Final = "WatchesCurrent"
    WATCH_STALE: Final = "WatchStale"
    # Advertised, Conflict, AgentReady, Ready
    ADVERTISED: Final = "Advertised"
    BY_KUBELET: Final = "ByKubelet"
    # also Registered and Injectable
    SERVED_BY_KUBELET: Final = "ServedByKubelet"
    NOT_INJECTABLE: Final = "NotInjectable"
    NOT_ADVERTISED: Final = "NotAdvertised"
    POLICY_PENDING: Final = "PolicyPending"
    TOO_MANY_NAMES: Final = "TooManyNames"
    NAME_EXCLUDED: Final = "NameExcluded"
    WRITE_REFUSED: Final = "WriteRefused"
    UPDATE_REFUSED: Final = "UpdateRefused"
    FOREIGN_OWNER: Final = "ForeignOwner"
    CHANGED_REPEATEDLY: Final = "ChangedRepeatedly"
    NO_CONFLICT: Final = "NoConflict"
    NODE_MISSING: Final = "NodeMissing"
    WRONG_NAME: Final = "WrongName"
    FREE_WITHDRAWN: Final = "FreeDevicesWithdrawn"
    LEASE_RENEWED: Final = "LeaseRenewed"
    LEASE_EXPIRED: Final = "LeaseExpired"
    LEASES_EXPIRED_TOGETHER: Final = "LeasesExpiredTogether"
    LEASE_MISSING: Final = "LeaseMissing"
    ALL_CORDONED: Final = "AllCordoned"
    READY: Final = "Ready"
    # a pod that waits
    NOT_ENOUGH_DEVICES: Final = "NotEnoughDevices"
    NO_DEVICE_FITS: Final = "NoDeviceFits"
    CORDONS_NOT_SYNCED: Final = "CordonsNotSynced"
    ALLOCATIONS_OMITTED: Final = "AllocationsOmitted"
    ALLOCATE_FAILED: Final = "AllocateFailed"
    CHANGED_REQUEST: Final = "ChangedRequest"
    TOPOLOGY_AFFINITY: Final = "TopologyAffinity"
    # a pod that has its devices, and cannot use them yet
    PRE_START_FAILED: Final = "PreStartFailed"


# Reasons of Advertised with which a Node's kubelet counts the resource, and nobody else may.
COUNTED_BY_KUBELET: Final = frozenset({Reason.BY_KUBELET, Reason.SERVED_BY_KUBELET})

_PLAIN_NODE = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_PLAIN_RESOURCE = re.compile(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?/[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LOOKS_HASHED = re.compile(r".*-[0-9a-f]{8}")
_MAX_NAME = 253


def node_device_name(node_name: str, resource_name: str) -> str:
    """Name of the NodeDevice of one resource on one node, at most 253 characters; equal inputs, equal name.

    `node-a` and `example.com/gpu` give `node-a.example.com.gpu`. Where that would lose something (a node name with a
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
