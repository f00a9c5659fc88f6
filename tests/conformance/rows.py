"""The kubelet's device manager, row by row: which of its behaviour is the same here, which is stronger, which is not ours, and why.

behaviour (73): what it does at start and registration, with devices, allocation, containers and reports. scenario (106): what its
own tests assert, in the order of its suites. Both were read in Kubernetes 1.36 and 1.37. weak spot (29): where it is known to be
weak, from reports by users and from running it; `stronger` is a weakness that a test here shows to be gone, `same` one that the
newest kubelet has fixed too.

A test names the rows that it shows: `@pytest.mark.kubelet("behaviour 12", "scenario 4")`. tests/conformance/report.py counts them.
"""

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """What a row means here."""

    SAME = "same"
    STRONGER = "stronger"
    ON_A_NODE = "shown on a real node"
    KUBELETS = "the kubelet's alone"


@dataclass(frozen=True)
class Row:
    """note: the paragraph of docs/differences.md for a stronger one, else why it is not ours."""

    text: str
    kind: Kind
    note: str = ""


def same(text: str) -> Row:
    return Row(text, Kind.SAME)


def stronger(text: str, paragraph: str) -> Row:
    return Row(text, Kind.STRONGER, paragraph)


def on_a_node(text: str) -> Row:
    """The same; it is about containers, so some of its tests inspect those that a real runtime has started."""
    return Row(text, Kind.ON_A_NODE)


def kubelets(text: str, why: str) -> Row:
    return Row(text, Kind.KUBELETS, why)


# paragraphs of docs/differences.md
WAITS = "A refused pod waits"
ADVERTISED = "The advertised number never falls below what is in use"
LEAKS = "Nothing leaks when an allocation fails"
HEALTH = "Health is reported for every container"
KEEPS = "An admitted pod keeps its devices over a restart"
TIME = "Time passes as an event"
GONE_NAME = "A name that is gone leaves the Node"
FREED = "Devices are free as soon as the pod has ended"
PRE_START = "PreStartContainer is called when the pod has its devices"
NEWEST = "The newest plugin's list counts"
NO_LIST = "A plugin without a list allocates nothing"
CONTRADICTIONS = "Contradicting responses are reported"
VANISHED = "A device that vanishes while in use does no harm"
AGAIN = "A plugin may register again while it is connected"
HANGS = "A hung plugin blocks no other"
# reasons
OTHER_NAMES = "the Node's other names are not ours to zero"
PREDICATES = "the kubelet judges pods by the Node that the operator writes"
ADMISSION = "the kubelet's admission of pods it was given"
INTERNALS = "its internals; what comes of them is compared by other lines"

_BEHAVIOUR = {
    1: same("an invalid socket path is refused"),
    2: same("start: checkpoint, directory, sockets, then serve"),
    3: stronger("sockets in the directory are removed at start", "Another manager's directory is not touched"),
    4: same("stop twice, or without a start"),
    5: same("an unsupported version is refused"),
    6: same("names that are not extended resources are refused"),
    7: same("Register is answered once the plugin has sent its options"),
    8: same("options come from the plugin, not from its request"),
    9: same("a plugin whose options fail is not registered"),
    10: same("an unreachable plugin is not registered"),
    11: same("plugins found by their socket in a watched directory"),
    12: stronger("a second plugin takes over", NEWEST),
    13: same("the old plugin's end leaves the new one"),
    14: same("a stream that ended is not retried; its devices are unhealthy"),
    15: same("a stream that ends before its first list: 0 and 0"),
    16: same("a stopped plugin is not called"),
    17: kubelets("without a checkpoint all extended resources of the Node become 0", OTHER_NAMES),
    18: stronger("each list replaces the one before", "Nothing is written that did not change"),
    19: stronger("capacity counts all, allocatable the healthy ones", ADVERTISED),
    20: stronger("an ID listed twice counts twice", "A device ID counts once"),
    21: same("devices that break, recover and disappear"),
    22: same("a stopped plugin's devices still count, unhealthy"),
    23: stronger("after 5 minutes the resource is gone", TIME),
    24: stronger("a name that is gone stays on the Node with 0", GONE_NAME),
    25: same("allocatable without capacity is removed"),
    26: same("after a restart a resource of the checkpoint is ours, with 0"),
    27: stronger("a name that no plugin registered is ignored", NO_LIST),
    28: same("allocatable devices: all healthy ones"),
    29: same("init containers first, then apps; limits alone count"),
    30: stronger("garbage of pods that are gone is collected before an allocation", FREED),
    31: on_a_node("init containers' devices are used again"),
    32: on_a_node("a sidecar keeps what it takes over"),
    33: same("app containers share with no other"),
    34: stronger("what can be used again is known for the last pod alone", LEAKS),
    35: same("surplus of init containers stays until the pod ends"),
    36: same("a container that already has its devices is skipped"),
    37: same("a changed request is refused"),
    38: stronger("an unregistered resource of a former allocation is refused", WAITS),
    39: stronger("nothing healthy: refused, also for 0 devices", "A limit of 0 asks for nothing"),
    40: stronger("a held device that broke fails its pod when it comes again", KEEPS),
    41: on_a_node("running pods keep their devices while the manager restarts"),
    42: stronger("too few free devices: refused", WAITS),
    43: stronger("which devices are taken", "Equal inputs give equal choices"),
    44: same("what a plugin is asked for advice about"),
    45: same("odd advice is followed as far as it makes sense"),
    46: stronger("advice that fails refuses the pod", "Advice that fails refuses no pod"),
    47: stronger("a failed Allocate drops all that is in flight", LEAKS),
    48: stronger("a plugin that went before it is called", LEAKS),
    49: stronger("an answer with nothing leaks its devices", LEAKS),
    50: same("stored by NUMA node, with the answer, once saved"),
    51: stronger("earlier containers of a refused pod keep their devices for a while", LEAKS),
    52: same("a name that a pod has through DRA is ignored"),
    53: stronger("any error fails the pod for good", WAITS),
    54: stronger("the topology policy fails the pod for good", WAITS),
    55: kubelets("allocatable is raised for the kubelet's own predicates", PREDICATES),
    56: kubelets("a resource that the node lacks is dropped from the pod's predicates", ADMISSION),
    57: stronger("PreStartContainer before each start", PRE_START),
    58: same("PreStartContainer is about devices the container has"),
    59: stronger("a plugin that is away at the start is not called", PRE_START),
    60: same("a lost Allocate answer is requested again"),
    61: same("not for a pod that is over"),
    62: stronger("answers of several resources are merged", CONTRADICTIONS),
    63: kubelets(
        "mounts are named by their path and never relabelled", "how the kubelet words them for its own runtime call"
    ),
    64: same("restarts: the same devices, without a call"),
    65: stronger("a held device that breaks or goes leaves its pod alone", VANISHED),
    66: stronger("a pod's devices are freed some time after its end", FREED),
    67: same("a pod that was deleted meanwhile is gone"),
    68: stronger("health of a pod's devices is in its status", HEALTH),
    69: stronger("that health leaves out init containers and vanished devices", HEALTH),
    70: same("a pod that is over gets nothing after a restart"),
    71: stronger("after a reboot without its plugin a pod fails", KEEPS),
    72: same("List: sidecars, then apps; no init containers"),
    73: same("Get: by name; unknown, or over, is an error"),
}

_SCENARIOS = {
    1: same("a manager can be made"),
    2: same("start, then stop twice"),
    3: same("the same with a watched directory"),
    4: same("2 devices, the same 2 by another plugin, then 1"),
    5: same("the same through the watched directory"),
    6: same("2 healthy, 1 unhealthy: 3 and 2"),
    7: same("the unhealthy one goes: 2 and 2"),
    8: same("a healthy one breaks: 3 and 1"),
    9: same("a healthy one goes: 2 and 0"),
    10: same("a second resource is independent"),
    11: stronger("stopped for 5 minutes: gone", TIME),
    12: same("a stopped plugin is not called"),
    13: same("a stopped plugin: 3 and 0"),
    14: same("written and read again: stopped, 0 and 0, still ours"),
    15: same("allocatable devices of two resources"),
    16: same("a recovered device is allocatable again"),
    17: same("a checkpoint of five entries survives"),
    18: same("a device of two nodes is near to both"),
    19: same("the rest is far"),
    20: same("two resources for one container"),
    21: stronger("not enough: an error, counts unchanged", WAITS),
    22: same("the last device is given"),
    23: stronger("none healthy", WAITS),
    24: stronger("unregistered", WAITS),
    25: stronger("a former device is no longer healthy", KEEPS),
    26: same("garbage collected while a plugin is asked for advice"),
    27: on_a_node("what a container is started with"),
    28: same("init containers' devices in app containers"),
    29: same("sidecars' devices are their own"),
    30: kubelets("the kubelet's own predicates see at least what is allocated", PREDICATES),
    31: stronger("PreStartContainer with both devices", PRE_START),
    32: same("not for a limit of 0"),
    33: kubelets("a node without a checkpoint counts as recreated", OTHER_NAMES),
    34: same("hints while lists change"),
    35: same("the same for the whole pod"),
    36: stronger("health in the pod's status", HEALTH),
    37: kubelets(
        "changes of health are queued, 100 at most", "nothing is queued: what is published is always the present state"
    ),
    38: same("a name that a pod has through DRA is ignored"),
    39: same("one that it has not through DRA is not"),
    40: same("a plugin's end makes all unhealthy; time clears everything"),
    41: stronger("the same socket three times: one connection", AGAIN),
    42: same("a failed registration leaves no connection"),
    43: same("an endpoint can be made"),
    44: same("lists come whole and in order"),
    45: same("Allocate's answer comes as it was"),
    46: same("so does advice"),
    47: same("a device of two NUMA nodes is reported for both"),
    48: kubelets("filters of device maps", INTERNALS),
    49: same("merge of answers: nothing"),
    50: same("merge of answers: CDI"),
    51: same("merge of answers: CDI of two resources"),
    52: same("merge of answers: CDI twice"),
    53: same("which pod holds a device"),
    54: same("hints of a container"),
    55: same("hints of a pod"),
    56: same("near devices first, advice within them"),
    57: same("what a plugin is asked for advice about"),
    58: same("what a pod asks for at once at most"),
    59: same("nodes that have devices"),
    60: same("many nodes, few with devices"),
    61: same("merged with others' hints"),
    62: same("checkpoints: made, read, wrong"),
    63: stronger("a file from before NUMA nodes", "Checkpoints of version 1 are read"),
    64: same("sockets that appear and disappear"),
    65: same("many sockets of one name"),
    66: same("a recreated socket"),
    67: same("sockets that were there before"),
    68: same("register, unregister, register again"),
    69: same("one operation at a time for a socket"),
    70: kubelets("caches of desired and actual sockets", INTERNALS),
    71: same("List: pods, devices, both, neither"),
    72: same("List: active pods alone"),
    73: same("List: sidecars, no init containers"),
    74: same("allocatable resources"),
    75: same("Get: a pod that is not there"),
    76: same("Get: sidecars, no init containers"),
    77: same("List of v1alpha1"),
    78: stronger("a resource is in capacity and allocatable", ADVERTISED),
    79: stronger("one that is gone: 0", GONE_NAME),
    80: same("allocatable without capacity goes"),
    81: kubelets("zeroed only without a checkpoint", OTHER_NAMES),
    82: kubelets("names that the node lacks are dropped for the predicates", ADMISSION),
    83: same("a pod gets one device, and List shows it"),
    84: on_a_node("a CDI device of the plugin"),
    85: on_a_node("a container that starts again has its device, a second pod another"),
    86: on_a_node("the manager restarts: same device"),
    87: same("pod and manager restart"),
    88: same("a pod that succeeded gets nothing again"),
    89: on_a_node("the plugin restarts: same device"),
    90: on_a_node("manager and plugin restart"),
    91: same("an orphaned pod is cleaned up"),
    92: on_a_node("init, sidecar and app; List shows two"),
    93: stronger("reboot without the plugin: failed, not listed", WAITS),
    94: stronger("the same, capacity 0", ADVERTISED),
    95: same("options fail: no resource"),
    96: stronger("one device: there, broken, there", ADVERTISED),
    97: stronger("it breaks under a pod, which goes on", ADVERTISED),
    98: stronger("four devices that come and go", ADVERTISED),
    99: same("a stream that fails at once"),
    100: same("a stream that fails later"),
    101: stronger("a plugin that is stopped", TIME),
    102: stronger("health in the pod's status changes", HEALTH),
    103: stronger("also of a pod whose image cannot be had", HEALTH),
    104: same("a device without topology has none, also after a restart"),
    105: same("too many List calls are refused"),
    106: same("calls are counted in metrics"),
}

_WEAK_SPOTS = {
    1: stronger("two pods can get the same device while a third one's allocation fails", LEAKS),
    2: stronger("devices stay reserved after an error, for no pod", LEAKS),
    3: stronger("a plugin that hangs in Allocate stops all pods of the node", HANGS),
    4: stronger("a refused pod has failed for good", WAITS),
    5: stronger("a restart fails running pods with init containers", KEEPS),
    6: stronger("a lost checkpoint: pods run without devices", "An unreadable checkpoint loses nothing"),
    7: stronger("an old plugin's end is taken for the new one's", NEWEST),
    8: stronger("registering again leaks connections", AGAIN),
    9: stronger(
        "a plugin has to notice the manager's restart, and some do not", "Plugins are reconnected after a restart"
    ),
    10: stronger("lists of more than 4 MiB end the stream", "Device lists up to 131,072 devices"),
    11: stronger("a broken device has no effect on its pod", HEALTH),
    12: stronger("a device that is gone is reported healthy; a plugin's end is not reported", HEALTH),
    13: stronger("which device a pod has is not in the API", "Allocations are in the API"),
    14: kubelets(
        "Allocate does not know the pod", "v1beta1 names none; plugins that read device_details.proto get the container"
    ),
    15: kubelets(
        "no call when a device is given back", "v1beta1 has none; plugins with DeviceHoldings get what is still in use"
    ),
    16: kubelets(
        "no sharing, whole numbers alone",
        "a plugin lists an ID for each share, and may give rules for parts of devices",
    ),
    17: stronger("finished pods stay in the checkpoint", FREED),
    18: stronger("a resource's name never leaves the Node", GONE_NAME),
    19: stronger("the Node's numbers are late, and wrong while a plugin restarts", ADVERTISED),
    20: kubelets(
        "what an init container had beyond its pod's needs is held to the end",
        "it runs again with a new sandbox, and has to find its devices",
    ),
    21: same("hints cost the power of the machine's NUMA nodes"),
    22: same("it crashes on concurrent map writes"),
    23: stronger(
        "after a reboot a pod has the answer for a device that is another by now",
        "Invalid settings are refused before the container is created",
    ),
    24: stronger("answers that contradict each other: the winner is random", CONTRADICTIONS),
    25: stronger("it crashes when a device leaves the list during its Allocate", VANISHED),
    26: stronger("a plugin that hangs in GetPreferredAllocation stops all pods of the node", HANGS),
    27: stronger("without a list, pods run without their device", NO_LIST),
    28: stronger("memory for what plugins list and answer is unbounded", "The number of plugins has a bound"),
    29: stronger(
        "sockets outside the directory are followed, and any bytes are an ID",
        "A socket lies in the plugin directory itself",
    ),
}

TABLES = {"behaviour": _BEHAVIOUR, "scenario": _SCENARIOS, "weak spot": _WEAK_SPOTS}
# by what a test's marker calls them
ROWS = {f"{table} {number}": row for table, rows in TABLES.items() for number, row in rows.items()}
