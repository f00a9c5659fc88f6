"""Each line of docs/security.md about an origin has a test that holds it, and that test exists; each bound in it is the code's."""

import ast
import re
from collections.abc import Iterator

import pytest
from nodedevice_agent.checkpoint import files, long_files, writer
from nodedevice_agent.configs import effective, kept
from nodedevice_agent.devicemanager import pods, registration, resource_name_limit, runtime
from nodedevice_agent.devicemanager.allocation import answer_limit
from nodedevice_agent.devicemanager.resources import devices, list_limit, physical_devices, same_devices
from nodedevice_agent.devicemanager.snapshot import MAX_NAMED_DEVICES
from nodedevice_agent.deviceplugin import codec as device_codec
from nodedevice_agent.deviceplugin import connection, held_lists, plugin_watcher, redial, registration_server
from nodedevice_agent.dra import claim, claims, observer, pools, slices
from nodedevice_agent.kube import informer, initial_lists, pod_objects, responses, update_pace, write_budget
from nodedevice_agent.kube.status import MAX_LIST_BYTES
from nodedevice_agent.kubelet import codec, directory, served
from nodedevice_agent.lib import cdi_files, grpc_server, patient_reads
from nodedevice_agent.nri import synchronization
from nodedevice_agent.offered_twice import compare
from nodedevice_agent.plugins import room
from nodedevice_agent.plugins.generic import source
from nodedevice_agent.plugins.nvml import creation
from nodedevice_common import fair_places, http_server, paced_log
from nodedevice_kube import planner
from nodedevice_operator import workqueue
from nodedevice_operator.configs import status
from nodedevice_operator.extender import admission, connections, http_protocol
from nodedevice_operator.informers import memory_bounds
from nodedevice_operator.kube import requests
from nodedevice_operator.observability import recorder
from nodedevice_operator.reconcile import turn
from nodedevice_operator.requiredplugins import policy

from charts import config_rules
from tests.unit.sources import ROOT, parsed
from tests.unit.threats import TESTS

PAGE = ROOT / "docs" / "security.md"
_FED = re.findall(r"`(tests/[^`]+\.py::[^`]+)`", PAGE.read_text(encoding="utf-8"))
NAMED = sorted({*_FED, *(name for lines in TESTS.values() for names in lines.values() for name in names)})


_CHART = "charts/nodedevice/templates"
_KIB = 1024
_MIB = 1024 * _KIB


def _number(file: str, pattern: str) -> int:
    """What stands there in the API server's language."""
    [found] = re.findall(pattern, (ROOT / file).read_text(encoding="utf-8"))
    return int(found)


# What is in the column "limit", with the numbers of the code.
BOUNDS = {
    f"{connection.MAX_MESSAGE_BYTES // _MIB} MiB a list",
    f"{devices.MAX_ID_OCTETS // _MIB} MiB an ID",
    f"a dial in {redial.MOST_REDIAL_SECONDS:.0f} s",
    f"{codec.MAX_CLAIM_ROWS:,} devices by claims of a node",
    f"{codec.MAX_CLAIM_ROWS_OF_POD:,} of a pod",
    f"{claim.MAX_BYTES // _MIB} MiB of a claim",
    f"{claims.MAX_CLAIMS:,} claims of a node",
    f"{claims.AT_ONCE} readings of claims at once, then {claims.PER_SECOND:g} a second",
    f"{connection.MAX_ALLOCATION_BYTES // _KIB} KiB a response",
    f"{grpc_server.SMALL_REQUEST_BYTES // _KIB} KiB a registration",
    f"{devices.MAX_DEVICES:,} devices and {list_limit.MAX_OCTETS // _MIB} MiB of all plugins",
    f"{list_limit.MAX_DEVICES_OF_DOMAIN:,} and {list_limit.MAX_OCTETS_OF_DOMAIN // _MIB} MiB of a domain",
    f"{list_limit.MAX_OCTETS_OF_DOMAIN // _MIB} MiB of a domain",
    f"{held_lists.MAX_HELD_BYTES // _MIB} MiB of refused lists, compressed",
    f"{held_lists.MAX_HELD_BYTES_OF_DOMAIN // _MIB} MiB of a domain",
    f"{devices.MAX_KEPT_OF_GONE} unclaimed devices of a name",
    f"{connection.LISTS_PER_SECOND:g} lists a second of a name",
    "one long one at a time, for half of the time",
    f"{answer_limit.MAX_OCTETS // _MIB} MiB of responses in memory",
    f"{answer_limit.MAX_OCTETS_OF_DOMAIN // _MIB} MiB of a domain",
    f"{long_files.MAX_RESPONSE_BYTES // _KIB} KiB of a response in the kubelet's checkpoint",
    f"{long_files.MAX_RESPONSES_BYTES // _MIB} MiB of them all",
    f"{directory.MAX_BYTES // _MIB:,} MiB of its file",
    f"{devices.MAX_DEVICES_OF_KUBELET:,} devices of the kubelet's plugins",
    f"{served.MAX_DEVICES_IN_LOOP:,} of the kubelet's devices in one turn",
    f"{device_codec.MAX_DEVICE_BYTES // _KIB} KiB of a device",
    f"{device_codec.MAX_NODES_OF_ALL:,} NUMA nodes of a list",
    f"{device_codec.MAX_ENTRIES:,} entries of a response",
    f"{resource_name_limit.MAX_NAMES} names of a node, and a watch for each",
    f"{policy.MOST_NAMES_OF_NODE} names in the policy",
    f"{policy.MOST_NAMES_OF_NODE} names of a node in the policy",
    f"{registration.MAX_CONNECTIONS_OF_A_SOCKET} connections of a socket",
    f"{registration.MAX_CONNECTIONS_OF_A_NAME} of a name",
    f"{4 * runtime.MOST_SHOWN // _KIB} KiB of digests of a container",
    f"{synchronization.MOST_OBJECTS:,} pods and containers of a node",
    f"{creation.MOST_VARIABLES:,} such variables of a container",
    f"{registration.MAX_FURTHER_CONNECTIONS} more than there are names",
    f"{grpc_server.IDLE_MILLISECONDS // 1000} s without a call",
    f"{registration_server.MAX_REJECTIONS} rejections of {registration_server._MAX_CHARACTERS} characters on the Lease",
    f"{paced_log.SUBJECT_AT_ONCE} lines of a reason at once",
    f"{paced_log.SUBJECT_AT_ONCE} lines of an event about a name at once, {paced_log.EVENT_AT_ONCE} about all, and sums",
    "a second for a scan of all devices",
    f"{patient_reads.MAX_HANGING} calls that hang",
    f"{write_budget.OBJECT_WRITES_PER_SECOND:g} writes a second of a name",
    f"{write_budget.AGENT_WRITES_PER_SECOND:g} of a node",
    f"{slices.MAX_DEVICES} devices of {slices.MAX_ATTRIBUTES} attributes a slice",
    f"{responses.MOST_LISTED // _MIB} MiB of slices in a list",
    f"{pools.MAX_ATTRIBUTES:,} attributes of a node, and {pools.MAX_COUNTERS:,} counters",
    f"{pools.MAX_SLICES_OF_DRIVER} slices of a driver",
    f"{pools.MAX_SLICES} slices of a node, or {pools.MAX_SLICES_IN_ALL} with {pools.MIN_SLICES_OF_DRIVER} of a driver",
    f"{MAX_NAMED_DEVICES:,} devices of a NodeDevice in {MAX_LIST_BYTES // _KIB} KiB",
    f"{observer.DECODED_AT_ONCE} readings of a slice at once, then {observer.DECODED_PER_SECOND:g} a second",
    f"{compare.MOST_DEVICES:,} devices of two resources",
    f"{cdi_files.MAX_FILES} files and {cdi_files.MAX_BYTES_OF_ALL // _MIB} MiB of CDI specifications",
    f"{http_server.MAX_CONNECTIONS} connections of {http_server.CONNECTION_SECONDS:g} s",
    f"{http_server.REQUEST_BYTES // _KIB} KiB a request",
    f"{connections.MOST} connections",
    f"{admission.HANDSHAKES_PER_SECOND} handshakes a second, {admission.MOST_HANDSHAKES} at once"
    f" and {admission.MOST_HANDSHAKES_OF_PEER} of an address",
    f"{connections.HANDSHAKE_SECONDS:g} s for a handshake",
    f"{http_protocol.MOST_REQUEST_BYTES // _MIB} MiB a request",
    f"{planner.MOST_CONTAINERS} containers that ask for parts, and {planner.MOST_PLANNED:,} with each physical device",
    f"{physical_devices.MOST_LINKED:,} devices of a domain",
    f"{same_devices.MOST_KINDS:,} devices of all, shared ones that are alike once",
    f"{requests._MOST_PAGE_BYTES // _MIB} MiB a page of a list",
    f"{memory_bounds.MOST_OF_NODE} NodeDevices and {memory_bounds.MOST_BYTES_OF_NODE // _MIB} MiB of a node count with their lists",
    f"{recorder.MOST_WAITING:,} Events wait, of nodes in turn",
    f"{recorder._PER_SECOND:g} a second",
    f"{recorder._BURST_OF_NODE} of a node, and {recorder._PER_SECOND_OF_NODE:g} a second",
    "the rest is counted",
    f"{turn.REQUESTS_AT_ONCE} requests for its objects at once, and {turn.REQUESTS_PER_SECOND:g} a second",
    f"{workqueue.REST_SECONDS_OF_OBJECT * 1000:g} ms of rest an object, up to {workqueue.LONGEST_REST_SECONDS:g} s",
    f"{status.MOST_REFUSALS} refusals of {status.LONGEST_REFUSAL} characters in its status",
    f"{source.MAX_DEVICES:,} devices of a resource",
    f"{room.MAX_DEVICES_OF_ALL:,} devices of all built-in resources, and {room.LEAST_DEVICES} of each",
    f"{config_rules.MAX_WILDCARDS} wildcards of a pattern",
    f"a place in {fair_places.EXCHANGE_SECONDS:g} s",
    f"{_number('crds/nodedevices.yaml', r'sum[(][)] <= ([0-9]+) &&') // _KIB} KiB of cordons",
    f"{_number(f'{_CHART}/people-rbac.yaml', r'owned.0. <= ([0-9]+)') // _KIB} KiB of entries about them in managedFields",
    f"{_number(f'{_CHART}/scheduler-admission.yaml', r'size.. <= ([0-9]+)'):,} characters of the choice",
    f"{registration.MAX_OPENING} without a response",
    f"{plugin_watcher.MAX_SOCKETS:,} sockets of the registry",
    f"{initial_lists.PER_SECOND:g} first lists and watches a second",
    f"{initial_lists.MOST_UNDER_WAY} of them unanswered",
    f"{informer.REQUESTS_PER_SECOND:g} lists and watches a second of an agent",
    f"{informer.URGENT_REQUESTS_PER_SECOND:g} more that is urgent",
    f"{writer.JOURNAL_BYTES // _KIB} KiB of changes without the whole file",
    f"{files.MAX_BYTES // _MIB} MiB of a file are read",
}


# What is in the column "kept of it, at most", of what an agent can be made to use.
KEPT = {
    f"{pod_objects.MAX_REQUESTS} requests of a pod",
    f"{pod_objects.MAX_OTHERS} other containers of it",
    f"{pods.MAX_SETTINGS} settings of a pod",
    f"{pod_objects.MAX_SETTING} characters of one",
    f"{update_pace.AT_ONCE} versions of an object at once, then {update_pace.PER_SECOND:g} a second",
    f"{kept.MAX_LABELS} labels of a selector",
    f"{effective.MAX_OCTETS // _MIB} MiB of text",
    f"{responses.MOST_LISTED // _MIB} MiB of slices in a list",
    f"{claim.MAX_RESULTS} devices of a claim",
    f"{long_files.MAX_RESPONSES_BYTES // _MIB} MiB of responses",
    f"{long_files.MAX_RESPONSE_BYTES // _KIB} KiB of one",
    f"{devices.MAX_DEVICES_OF_KUBELET:,} devices of the kubelet's plugins",
    f"{devices.MAX_DEVICES:,} devices and {list_limit.MAX_OCTETS // _MIB} MiB of all plugins",
    f"{room.MAX_DEVICES_OF_ALL:,} devices of all built-in resources",
    f"{4 * runtime.MOST_SHOWN // _KIB} KiB of digests of a container",
    f"{cdi_files.MAX_VALUES_OF_ALL:,} values of all CDI specifications",
    "what pods hold",
}


def rows(head: str) -> list[list[str]]:
    """Origin and cells of each row of the tables whose first column has that head; the origin is the heading above."""
    of_tables: list[list[str]] = []
    origin, is_in = "", False
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        origin = line.strip("# ") if line.startswith("#") else origin
        is_head = line.startswith(f"| {head} |")
        is_in = is_head or (is_in and line.startswith("|"))
        if is_in and not is_head and line.startswith("| "):
            of_tables.append([origin, *(cell.strip() for cell in line.split("|")[1:-1])])
    return of_tables


def test_what_is_kept_is_bounded_by_the_code() -> None:
    assert {bound for row in rows("origin") for bound in row[4].split("; ")} == KEPT
    named = {row[5].rsplit("::", 1)[1].rstrip("`") for row in rows("origin")}
    assert len(named) == len(rows("origin"))
    assert named == set(_fed()), "each origin that is fed to an agent has a row, and the other way round"


def _fed() -> Iterator[str]:
    """Names of the rows of the memory test. They are read, not imported: that test waits, and is in no gate."""
    for file in (ROOT / "tests" / "robustness" / "memory").glob("*_rows.py"):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "ROWS":
                assert isinstance(node.value, ast.Tuple)
                yield from map(ast.unparse, node.value.elts)


def test_every_row_has_a_test() -> None:
    lines = [(origin, cannot) for origin, cannot, _ in rows("cannot")]
    assert sorted(lines) == sorted((origin, cannot) for origin, tests in TESTS.items() for cannot in tests)
    assert [cannot for tests in TESTS.values() for cannot, names in tests.items() if not names] == []


def test_each_bound_is_that_of_the_code() -> None:
    named = {bound for row in rows("cannot") if row[2] for bound in row[2].split("; ")}
    assert named - BOUNDS == set(), "name it in BOUNDS with the number of the code, or correct the page"
    assert BOUNDS - named == set(), "write into docs/security.md whom it bounds, with a test in threats.py"


@pytest.mark.parametrize("name", NAMED)
def test_it_exists(name: str) -> None:
    path, *where = name.split("::")
    body: list[ast.stmt] = parsed(ROOT / path).body
    for part in where:
        found = [each for each in body if getattr(each, "name", "") == part]
        assert found, f"{path} has no {part}: correct threats.py or docs/security.md"
        body = getattr(found[0], "body", [])
