"""`make bench-cli`: what `kubectl nodedevice` costs a person: at 100 nodes, and at 5,000 with 10,000 NodeDevices of 8 devices.

    python -m hack.bench.cli [--against COMMIT [--rounds 3]]

BENCH_NODES: of the big cluster, 5,000. The API server is real and idle; statuses are as agents and operator write them. The program
is measured as a process of its own: time by the clock, CPU, and the most memory. --against: that commit's command reads the same
cluster, in turn with this tree's.
"""

import argparse
import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from nodedevice_api import names

from hack.bench import against, page, trees
from hack.bench.operator import fleet
from hack.bench.operator.api import Api, Refused
from hack.bench.results import Result, judged, publish, result
from hack.bench.running import bench_folder, show_progress
from hack.bench.trees import Tree, TreeError
from hack.release import zipapp
from tests.cluster.agent_objects import SINCE, node_device
from tests.cluster.chart import install_chart
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.errors import ClusterError

_ROOT: Final = Path(__file__).parents[2]
_OUT: Final = _ROOT / "build/bench-cli.json"
_NODE_DEVICES: Final = f"/apis/{names.GROUP}/{names.VERSION}/{names.NODE_DEVICES}"
_FEW, _RUNS = 100, 7
# share of nodes with an unhealthy device
_BROKEN: Final = 250
# Reads the rows of all NodeDevices as kubectl does, packed and in pages of 500, and does nothing with them.
# Arguments: a kubeconfig, and the path of NodeDevices.
_BARE: Final = """
import base64, gzip, http.client, json, ssl, sys, tempfile, yaml
from urllib.parse import quote, urlsplit
config = yaml.safe_load(open(sys.argv[1]))
user, cluster = config["users"][0]["user"], config["clusters"][0]["cluster"]
context = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
with tempfile.NamedTemporaryFile() as pair:
    pair.write(base64.b64decode(user["client-certificate-data"]) + base64.b64decode(user["client-key-data"]))
    pair.flush()
    context.load_cert_chain(pair.name)
server = urlsplit(cluster["server"])
connection = http.client.HTTPSConnection(server.hostname, server.port, context=context)
path, more = sys.argv[2] + "?includeObject=None&limit=500", ""
while True:
    headers = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io", "Accept-Encoding": "gzip"}
    connection.request("GET", path + more, headers=headers)
    response = connection.getresponse()
    body = response.read()
    page = json.loads(gzip.decompress(body) if response.getheader("Content-Encoding") == "gzip" else body)
    page["rows"]
    token = page["metadata"].get("continue")
    if not token:
        break
    more = "&continue=" + quote(token)
"""
# Starts a command, discards its output, and prints its use of resources. It is a small process of its own: a child's memory
# includes that of the process that forked it.
_MEASURED: Final = """
import os, sys, time
began = time.monotonic()
nobody = os.open(os.devnull, os.O_WRONLY)
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, nobody, 1)])
_, status, used = os.wait4(pid, 0)
seconds = time.monotonic() - began
print([os.waitstatus_to_exitcode(status), seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024])
"""
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Run:
    """One process. seconds: wall-clock time."""

    seconds: float
    cpu_seconds: float
    mib: float


@dataclass(frozen=True)
class Program:
    """A tree's `kubectl nodedevice`: as an installed module, and as one file."""

    installed: Sequence[str]
    zipped: Sequence[str]

    @classmethod
    def of(cls, tree: Tree, archive: Path) -> "Program":
        """archive: the file to write, with the tree's own libraries. Raises TreeError."""
        python = str(tree.python)
        trees.run(tree.path, python, "-m", "hack.release.zipapp", "--target", str(archive))
        return cls([python, "-m", "kubectl_nodedevice"], [python, "-I", str(archive)])


async def measure(
    count: int, folder: Path, progress: Progress, programs: Sequence[Program], rounds: int
) -> list[list[dict[str, Result]]]:
    """Return the rows of each program, by round. Raises ClusterError and Refused."""
    found: list[list[dict[str, Result]]] = [[{} for _ in programs] for _ in range(rounds)]
    with ControlPlane.start(folder / "cluster", lambda _: None) as control_plane:
        install_chart(control_plane)
        control_plane.stop_controllers()
        environment = {**os.environ, "KUBECONFIG": str(control_plane.admin_kubeconfig), "HOME": str(folder)}
        async with Api(control_plane.admin_kubeconfig) as api:
            progress(f"{_FEW} nodes")
            await _make(api, range(_FEW))
            for program, rows in _in_turn(programs, found):
                rows |= _few(program, environment)
            progress(f"{count} nodes")
            await _make(api, range(_FEW, count))
        progress("measuring")
        for program, rows in _in_turn(programs, found):
            rows |= _many(program, environment)
        if len(programs) == 1:
            found[0][0] |= await _page(control_plane.admin_kubeconfig, environment, progress)
    return found


def _in_turn(
    programs: Sequence[Program], found: Sequence[Sequence[dict[str, Result]]]
) -> Iterator[tuple[Program, dict[str, Result]]]:
    for rows in found:
        yield from zip(programs, rows, strict=True)


def _few(program: Program, environment: dict[str, str]) -> dict[str, Result]:
    # where the one file unpacks itself; of the first call, another one each time
    with TemporaryDirectory() as cache:
        first = _run([*program.zipped, "devices"], {**environment, "XDG_CACHE_HOME": cache})
    commands = {
        "cli_screen_few": program.installed,
        "cli_devices_few": [*program.installed, "devices"],
        "cli_zipapp_few": program.zipped,
    }
    spent = {name: [each.cpu_seconds for each in _runs(command, environment)] for name, command in commands.items()}
    return {"cli_first_call": _single(first)} | {name: result(each, "s", 0.4) for name, each in spent.items()}


def _many(program: Program, environment: dict[str, str]) -> dict[str, Result]:
    screens = _runs(program.installed, environment)
    one = _runs([*program.installed, "devices", "--node", fleet.node_name(7)], environment)
    found = {
        "cli_screen": result([each.seconds for each in screens], "s", 3.0),
        "cli_screen_cpu": result([each.cpu_seconds for each in screens], "s", 1.0),
        "cli_memory": result([each.mib for each in screens], "MiB", 150.0),
        "cli_node": result([each.seconds for each in one], "s", 1.0),
    }
    if not _has(program, "nodes"):
        return found
    # in turn, as both depend on what else the machine does
    bare = [sys.executable, "-I", "-c", _BARE, environment["KUBECONFIG"], _NODE_DEVICES]
    in_turn = [
        (_run([*program.installed, "nodes"], environment), _run(bare, environment, most=0)) for _ in range(_RUNS)
    ]
    return found | {
        "cli_nodes": result([nodes.seconds for nodes, _ in in_turn], "s", 3.0),
        "cli_nodes_over_list": result([nodes.seconds / bare.seconds for nodes, bare in in_turn], "ratio", 1.3),
    }


def _has(program: Program, command: str) -> bool:
    """Whether that commit has the command."""
    done = subprocess.run([*program.installed, command, "--help"], capture_output=True, check=False)
    return done.returncode == 0


async def _page(kubeconfig: Path, environment: dict[str, str], progress: Progress) -> dict[str, Result]:
    """No rows on a machine without Chromium."""
    chromium = shutil.which("chromium")
    if chromium is None:
        progress("no rows of the page: Chromium is not on this machine; apt-get install chromium")
        return {}
    async with Api(kubeconfig) as api:
        # node 0 has an unhealthy device at first, and the page's first row is its first resource
        first = min(fleet.RESOURCES)
        return await page.measure(environment, chromium, lambda n: _write_status(api, 0, first, is_broken=n % 2 == 1))


def _single(first: Run) -> Result:
    return judged(first.cpu_seconds, first.cpu_seconds, "s", 2.0, 1)


async def _make(api: Api, numbers: Sequence[int]) -> None:
    await asyncio.gather(*(_make_one(api, number, resource) for number in numbers for resource in fleet.RESOURCES))


async def _make_one(api: Api, number: int, resource: str) -> None:
    body = node_device(fleet.node_name(number), resource, f"uid-{number}")
    await api.apply(f"{_NODE_DEVICES}/{body['metadata']['name']}", body, names.AGENT_FIELD_MANAGER)
    await _write_status(api, number, resource, is_broken=number % _BROKEN == 0)


async def _write_status(api: Api, number: int, resource: str, *, is_broken: bool) -> None:
    node = fleet.node_name(number)
    pods = {
        fleet.pod_name(node, each): fleet.Owner(fleet.pod_name(node, each), f"uid-{number}-{each}")
        for each in range(fleet.PODS)
    }
    status = fleet.node_device_status(node, resource, pods, is_broken=is_broken)
    conditions = status["status"].setdefault("conditions", [])
    conditions += [_condition(names.Condition.READY), _condition(names.Condition.AGENT_READY)]
    path = f"{_NODE_DEVICES}/{status['metadata']['name']}/status"
    await api.apply(path, status, names.AGENT_FIELD_MANAGER)


def _condition(kind: str) -> dict[str, Any]:
    return {"type": kind, "status": "True", "reason": kind, "message": "as expected", "lastTransitionTime": SINCE}


def _runs(command: Sequence[str], environment: dict[str, str], times: int = _RUNS) -> list[Run]:
    return [_run(command, environment) for _ in range(times)]


def _run(command: Sequence[str], environment: dict[str, str], most: int = 1) -> Run:
    """most: the highest exit status of a success. Raises Refused if the command fails."""
    command = [sys.executable, "-I", "-S", "-c", _MEASURED, *command]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    status, *measured = json.loads(done.stdout or "[-1]")
    if not 0 <= status <= most:
        raise Refused(f"{' '.join(command[-2:])} ended with {status}: {done.stderr}")
    return Run(*measured)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m hack.bench.cli", description=(__doc__ or "").partition("\n")[0])
    against.add_options(parser)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        count = max(_FEW, int(os.environ.get("BENCH_NODES", "5000")))
    except ValueError:
        print("BENCH_NODES is a number of nodes, such as 5000", file=sys.stderr)
        return 2
    try:
        with bench_folder() as folder, against.checked_out(options.against) as tree:
            ours = Program.of(Tree(_ROOT, Path(sys.executable)), folder / zipapp.NAME)
            if tree is None:
                [[results]] = asyncio.run(measure(count, folder, show_progress, [ours], 1))
            else:
                theirs = Program.of(tree, folder / f"old-{zipapp.NAME}")
                found = asyncio.run(measure(count, folder, show_progress, [theirs, ours], options.rounds))
                rounds = [against.Round(*rows) for rows in found]
                commit = trees.commit_of(_ROOT, options.against)
                return against.publish(commit, rounds, _OUT.with_name("bench-cli-against.json"))
    except (ClusterError, Refused, TreeError) as error:
        print(f"bench-cli: {error}", file=sys.stderr)
        return 2 if options.against else 1
    publish(results, _OUT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
