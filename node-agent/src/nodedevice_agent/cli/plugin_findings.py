"""Judges what a device plugin sent by the contract of the device plugin API v1beta1. Pure: values in, findings out.

Each finding has a remedy for the author of the plugin. A check without findings reports ok.
Source: kubelet pkg/kubelet/cm/devicemanager and k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1 @ 1.37.
"""

from collections.abc import Collection, Iterator, Sequence
from enum import Enum
from typing import Final

from msgspec import Struct

from nodedevice_agent.devicemanager.container_edits import ContainerEdits
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.devicemanager.resources.devices import ListedDevices
from nodedevice_agent.deviceplugin.connection import LISTS_PER_SECOND, MAX_ALLOCATION_BYTES
from nodedevice_agent.deviceplugin.list_facts import MAX_ID_CHARACTERS, ListFacts
from nodedevice_agent.lib.cdi_specification import DEVICE_NAME, KIND

# A kubelet's gRPC refuses a longer message, and drops the plugin (kubernetes#109304).
KUBELET_MESSAGE_BYTES: Final = 4 * 1024 * 1024
_PERMISSIONS: Final = frozenset("rwm")
# problems of one kind in one response
_MOST_NAMED: Final = 3


class Severity(Enum):
    """Sorted by severity, the least severe first. SKIPPED: not tested."""

    SKIPPED = "skipped"
    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


class Finding(Struct, frozen=True):
    """One line of the report. remedy: the fix; empty if nothing is wrong."""

    check: str
    severity: Severity
    text: str
    remedy: str = ""


class HostFile(Struct, frozen=True):
    """A path of the host. exists: None if it could not be read; `problem` is the reason."""

    path: str
    exists: bool | None
    is_device: bool = False
    problem: str = ""


def ok(check: str, text: str) -> Finding:
    return Finding(check, Severity.OK, text)


def skipped(check: str, text: str) -> Finding:
    return Finding(check, Severity.SKIPPED, text)


def warning(check: str, text: str, remedy: str) -> Finding:
    return Finding(check, Severity.WARNING, text, remedy)


def error(check: str, text: str, remedy: str) -> Finding:
    return Finding(check, Severity.ERROR, text, remedy)


def exit_status(findings: Collection[Finding]) -> int:
    """2 with an error, 1 with a warning, else 0."""
    severities = {finding.severity for finding in findings}
    return 2 if Severity.ERROR in severities else int(Severity.WARNING in severities)


def options(found: PluginOptions) -> Finding:
    wanted = ["PreStartContainer"] if found.pre_start_required else []
    wanted += ["GetPreferredAllocation"] if found.get_preferred_allocation_available else []
    return ok("options", f"it wants {' and '.join(wanted)}" if wanted else "it wants no optional call")


def first_list(facts: ListFacts, seconds: float) -> Finding:
    if not facts.devices:
        return warning("first list", f"empty, after {seconds:.1f} s", "List every device, also one that is unhealthy.")
    return ok("first list", f"{facts.devices} devices, {facts.healthy} of them healthy, after {seconds:.1f} s")


def list_size(facts: ListFacts, listed: ListedDevices) -> Finding:
    check, text = "list size", f"{facts.octets} bytes; a kubelet accepts {KUBELET_MESSAGE_BYTES}"
    if listed.is_refused:
        return error(check, listed.id_error, "List fewer, coarser devices.")
    if facts.octets > KUBELET_MESSAGE_BYTES:
        return error(check, f"{text}, and drops the plugin", "List fewer devices, or shorter IDs.")
    return ok(check, text)


def device_ids(facts: ListFacts, listed: ListedDevices) -> list[Finding]:
    check, findings = "device IDs", []
    if listed.id_error and not listed.is_refused:
        findings.append(error(check, listed.id_error, "List each device once, with an ID of its own."))
    if facts.long_ids.count:
        text = f"{facts.long_ids}: longer than {MAX_ID_CHARACTERS} characters, which the API documents as the limit"
        findings.append(warning(check, text, "Use shorter IDs."))
    if facts.unprintable_ids.count:
        what = "empty, not printable, or a word that the NodeDevice API reserves; shown escaped"
        remedy = "Use letters, digits, - . _ and : alone."
        findings.append(warning(check, f"{facts.unprintable_ids}: {what}", remedy))
    return findings or [ok(check, "each ID is unique and printable")]


def health(facts: ListFacts) -> Finding:
    if facts.odd_health.count:
        text = f"{facts.odd_health}: neither Healthy nor Unhealthy, so unhealthy"
        return warning("health", text, "Send exactly Healthy or Unhealthy.")
    return ok("health", "each device is Healthy or Unhealthy")


def topology(facts: ListFacts, machine_nodes: Sequence[int]) -> list[Finding]:
    """machine_nodes: the NUMA nodes of this machine; empty if unknown."""
    check, findings = "topology", []
    remedy = "Leave topology out of devices whose node is not known."
    if facts.invalid_nodes.count:
        findings.append(error(check, f"{facts.invalid_nodes}: not a NUMA node", remedy))
    if facts.no_nodes.count:
        text = f"{facts.no_nodes}: topology without a node, which aligns with no node"
        findings.append(warning(check, text, remedy))
    unknown = sorted(node for node in facts.nodes if node >= 0 and machine_nodes and node not in machine_nodes)
    if unknown:
        text = f"NUMA nodes {_named(map(str, unknown))} are not online on this machine"
        remedy = "Read the node from the device's sysfs attribute numa_node; -1 there means that it is not known."
        findings.append(warning(check, text, remedy))
    nodes = f"NUMA nodes {_named(map(str, sorted(facts.nodes)))}" if facts.nodes else "no device has one"
    return findings or [ok(check, nodes)]


def stream(seconds: float, lists: int, changes: int, ended: str) -> Finding:
    """lists, changes: after the first list. ended: why the stream ended; empty while it is open."""
    check = "stream"
    if ended:
        remedy = "Return from ListAndWatch only when the client cancels the call."
        return error(check, f"it ended within {seconds:.1f} s: {ended}", remedy)
    remedy = "Send a list only when a device changes."
    if lists > LISTS_PER_SECOND * seconds:
        return warning(check, f"{lists} further lists in {seconds:.1f} s", remedy)
    if lists > changes:
        return warning(check, f"{lists - changes} of {lists} further lists changed nothing", remedy)
    return ok(check, f"open for {seconds:.1f} s, {changes} changes")


def second_stream(first: ListedDevices, second: ListedDevices | None, problem: str) -> Finding:
    """A device manager that starts again opens a new stream, perhaps before the plugin sees the end of the old one."""
    check = "second stream"
    remedy = "Send the whole current list on each new ListAndWatch call."
    if second is None:
        return error(check, problem, remedy)
    if set(first.ids) != set(second.ids):
        differing = sorted({*first.ids} ^ {*second.ids})
        return warning(check, f"it lists other devices than the first one: {_named(differing)}", remedy)
    return ok(check, "it has the same devices")


def preferred(available: Sequence[str], size: int, returned: Sequence[str]) -> Finding:
    check = "GetPreferredAllocation"
    foreign = sorted({*returned} - {*available})
    if foreign:
        remedy = "Choose among available_deviceIDs alone."
        return error(check, f"it prefers devices that are not available: {_named(foreign)}", remedy)
    if len({*returned}) != size or len(returned) != size:
        remedy = "Return allocation_size different device IDs; the device manager ignores any other number of them."
        return warning(check, f"{len(returned)} devices for a size of {size}", remedy)
    return ok(check, f"{size} of {len(available)} available devices")


def allocate(device_id: str, octets: int, edits: ContainerEdits) -> Finding:
    if edits.is_empty:
        remedy = "Return device files, mounts, environment variables or CDI names that the container needs."
        return warning("Allocate", f"{device_id}: an empty response: the container gets nothing", remedy)
    return ok("Allocate", f"{device_id}: {octets} bytes of at most {MAX_ALLOCATION_BYTES}")


def device_files(edits: ContainerEdits, files: Sequence[HostFile]) -> list[Finding]:
    """files: the files of edits.devices, in this order."""
    check, findings = "device files", []
    odd = sorted({d.permissions for d in edits.devices if not d.permissions or set(d.permissions) - _PERMISSIONS})
    if odd:
        text = f"permissions {_named(map(repr, odd))} are not letters of rwm"
        findings.append(error(check, text, "Use rw, or rwm for mknod."))
    findings += _paths(check, files, "the container cannot start")
    plain = [file.path for file in files if file.exists and not file.is_device]
    if plain:
        remedy = "Return it as a mount; a runtime accepts device nodes here, or directories of them."
        findings.append(warning(check, f"{_named(plain)}: not a device node", remedy))
    if edits.devices and not findings:
        findings.append(ok(check, f"{len(edits.devices)} device files exist on the host"))
    return findings


def mounts(edits: ContainerEdits, files: Sequence[HostFile]) -> list[Finding]:
    """files: the files of edits.mounts, in this order."""
    check, effect = "mounts", "the runtime creates an empty directory, or refuses the container"
    findings = list(_paths(check, files, effect))
    if edits.mounts and not findings:
        findings.append(ok(check, f"{len(edits.mounts)} mounts exist on the host"))
    return findings


def cdi_devices(names: Sequence[str], defined: Collection[str] | None) -> Iterator[Finding]:
    """defined: the CDI devices of this host; None if they could not be read."""
    check = "CDI names"
    invalid = [name for name in names if not _is_cdi_name(name)]
    missing = [name for name in names if name not in invalid and defined is not None and name not in defined]
    if invalid:
        yield error(check, f"{_named(invalid)}: not of the form vendor/class=device", "Use fully qualified CDI names.")
    if missing:
        remedy = "Write the CDI specification to /var/run/cdi before Allocate returns its device."
        yield error(check, f"{_named(missing)}: in no valid file of /etc/cdi and /var/run/cdi", remedy)
    if names and not invalid and not missing:
        where = "defined on the host" if defined is not None else "well-formed"
        yield ok(check, f"{len(names)} names are {where}")


def _paths(check: str, files: Sequence[HostFile], effect: str) -> Iterator[Finding]:
    relative = [file.path for file in files if not file.path.startswith("/")]
    absent = [file.path for file in files if file.exists is False and file.path not in relative]
    unread = [f"{file.path} ({file.problem})" for file in files if file.exists is None and file.path not in relative]
    if relative:
        yield error(check, f"{_named(map(repr, relative))}: not an absolute path", "Set host_path to an absolute path.")
    if absent:
        remedy = "Return paths of the host, not of the plugin's container."
        severity = Severity.ERROR if check == "device files" else Severity.WARNING
        yield Finding(check, severity, f"{_named(absent)}: missing on the host; {effect}", remedy)
    if unread:
        remedy = "Run the command as root on the node, or check the device behind the path."
        yield warning(check, f"{_named(unread)}: cannot be read", remedy)


def _is_cdi_name(name: str) -> bool:
    kind, separator, device = name.partition("=")
    return bool(separator and KIND.fullmatch(kind) and DEVICE_NAME.fullmatch(device))


def _named(names: Collection[str] | Iterator[str]) -> str:
    names = list(names)
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more
