"""How far one has to read to follow a change: the source files that three walks enter, counted in a trace of the real programs.

    python -m hack.measure.walks [--root FOLDER]

The programs of FOLDER's .venv run against an API server, a container runtime and a device plugin in this process, with a trace of
every function of ours that they enter (traced/sitecustomize.py). Each walk is done several times, and only what most of them enter
is counted: renewals and other timers are not part of it. A coroutine that goes on after an await counts as entered only where
nothing of ours below it goes on.

climbs: calls into agent.py or operator.py, where the parts are put together. pass-throughs: functions that consist of one call.
"""

import argparse
import ast
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from nodedevice_api.upstream.nri.v1alpha1 import api_pb2

from tests.fakes.nri_runtime import FakeRuntime
from tests.fakes.played_api.kinds import NODES, PODS
from tests.fakes.played_api.messages import Answer, Request
from tests.fakes.played_api.server import PlayedApi
from tests.fakes.played_api.serving import kubeconfig, serving
from tests.fakes.plugin import FakeDevice, FakePlugin

Json = dict[str, Any]
REPOSITORY: Final = Path(__file__).parents[2]
RESOURCE: Final = "example.com/fake"
NODE: Final = "node-a"
_ROUNDS: Final = 7
# Longer than any work after a change, so that walks do not overlap.
_QUIET_SECONDS: Final = 1.5
_PATIENCE_SECONDS: Final = 60.0
_TOP: Final = ("nodedevice_agent/agent.py", "nodedevice_operator/operator.py")
DEVICE_LIST, CONTAINER, CAPACITY = "device list", "CreateContainer", "Node capacity"
_WALKS: Final = {
    DEVICE_LIST: ("agent", "device list received -> NodeDevice status sent"),
    CONTAINER: ("agent", "CreateContainer received -> response sent"),
    CAPACITY: ("operator", "NodeDevice event received -> Node capacity sent"),
}


@dataclass(frozen=True, slots=True)
class Entry:
    """A function that was entered. is_new: called, not resumed."""

    at_ns: int
    thread: str
    is_new: bool
    file: str
    line: int
    function: str

    @property
    def where(self) -> tuple[str, int, str]:
        return self.file, self.line, self.function


@dataclass
class Walk:
    """spans: start and end of each round, in monotonic nanoseconds."""

    name: str
    spans: list[tuple[int, int]] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    climbs: list[str] = field(default_factory=list)
    passes: list[str] = field(default_factory=list)

    def count(self, trace: list[Entry], root: Path) -> None:
        rounds = [_innermost([e for e in trace if start <= e.at_ns <= end]) for start, end in self.spans]
        often = Counter(function for entries in rounds for function in {e.where for e in entries})
        kept = [[e for e in entries if often[e.where] > len(rounds) / 2] for entries in rounds]
        fullest = max(kept, key=lambda entries: len({e.where for e in entries}))
        self.files = list(dict.fromkeys(e.file for e in fullest))
        climbs = [[e.function for e in entries if e.is_new and e.file in _TOP] for entries in kept]
        self.climbs = sorted(climbs, key=len)[len(climbs) // 2]
        functions = dict.fromkeys(e.where for e in fullest if e.is_new)
        self.passes = [f"{file}: {name}" for file, line, name in functions if _passes_on(_source(root, file), line)]

    def to_json(self) -> Json:
        counts = {"files": len(self.files), "climbs": len(self.climbs), "pass-throughs": len(self.passes)}
        milliseconds = statistics.median((end - start) / 1e6 for start, end in self.spans)
        found = {"files": self.files, "climbs": self.climbs, "pass-throughs": self.passes}
        return {"walk": _WALKS[self.name][1], "counts": counts, "traced_milliseconds": round(milliseconds, 1), **found}


def _innermost(entries: list[Entry]) -> list[Entry]:
    """The innermost of coroutines that continue together: the others only wait for it."""
    found = []
    for index, entry in enumerate(entries):
        after = next((e for e in entries[index + 1 :] if e.thread == entry.thread), None)
        if entry.is_new or after is None or after.is_new:
            found.append(entry)
    return found


def _source(root: Path, file: str) -> Path:
    """The file of that path below a distribution's src."""
    return next(found for found in root.glob(f"*/src/{file}"))


def _passes_on(file: Path, line: int) -> bool:
    """Whether the function that begins in that line only calls another one, with plain names as arguments."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            if first == line:
                return _is_one_call(node.body)
        elif isinstance(node, ast.Lambda) and node.lineno == line:
            return _is_plain_call(node.body)
    return False


def _is_one_call(body: list[ast.stmt]) -> bool:
    if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body = body[1:]
    if len(body) != 1 or not isinstance(body[0], ast.Expr | ast.Return) or body[0].value is None:
        return False
    return _is_plain_call(body[0].value)


def _is_plain_call(value: ast.expr) -> bool:
    if isinstance(value, ast.Await):
        value = value.value
    if not isinstance(value, ast.Call):
        return False
    arguments = [*value.args, *(keyword.value for keyword in value.keywords)]
    name = value.func.id if isinstance(value.func, ast.Name) else ""
    is_plain = all(isinstance(a, ast.Name | ast.Attribute | ast.Constant | ast.Starred) for a in arguments)
    # calls that create a value (a class, a built-in type) do not count as steps
    return is_plain and not name[:1].isupper() and name not in dir(__builtins__)


class Cluster:
    """Both programs and their environment."""

    def __init__(self, folder: Path, api: PlayedApi, runtime: FakeRuntime) -> None:
        self.folder, self.api, self.runtime = folder, api, runtime
        self.plugin = FakePlugin(RESOURCE, {"d0": FakeDevice()})
        self.walks = {name: Walk(name) for name in _WALKS}
        self._waits: list[tuple[Callable[[str, str], bool], asyncio.Future[int]]] = []
        self._loop = asyncio.get_running_loop()
        api.fault = self._asked
        api.put(NODES, {"metadata": {"name": NODE}, "status": {"capacity": {}, "allocatable": {}}})

    def _asked(self, request: Request) -> Answer | None:
        """Called in the API server's thread, before the request is carried out."""
        self._loop.call_soon_threadsafe(self._sent, request.method, request.path, time.monotonic_ns())
        return None

    def _sent(self, verb: str, path: str, at: int) -> None:
        for matches, future in self._waits:
            if matches(verb, path) and not future.done():
                future.set_result(at)

    async def sent(self, verb: str, *parts: str) -> int:
        """Time of the next such request, in monotonic nanoseconds."""
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        wait = (lambda seen, path: seen == verb and all(part in path for part in parts), future)
        self._waits.append(wait)
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                return await future
        finally:
            self._waits.remove(wait)

    async def measure(self) -> None:
        await self._first_list()
        connection = await self.runtime.plugin()
        for number in range(1, _ROUNDS + 1):
            await asyncio.sleep(_QUIET_SECONDS)
            await self._device_list(number)
        for number in range(_ROUNDS):
            pod = self._pod(number)
            sent = asyncio.create_task(self.sent("PATCH", "nodedevices", "status"))
            await asyncio.sleep(0)
            self.api.put(PODS, pod)
            await sent
            await asyncio.sleep(_QUIET_SECONDS)
            uid = pod["metadata"]["uid"]
            sandbox = api_pb2.PodSandbox(id=f"s-{uid}", name=pod["metadata"]["name"], namespace="default", uid=uid)
            container = api_pb2.Container(id=f"c-{uid}", pod_sandbox_id=sandbox.id, name="main")
            start = time.monotonic_ns()
            answer = await connection.create_container(sandbox, container)
            self.walks[CONTAINER].spans.append((start, time.monotonic_ns()))
            assert answer.env, "the container got no devices"

    async def _first_list(self) -> None:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while not (self.folder / "p/kubelet.sock").exists():
                await asyncio.sleep(0.05)
        capacity = asyncio.create_task(self.sent("PATCH", f"nodes/{NODE}/status"))
        await self.plugin.start(self.folder / "p")
        await self.plugin.register()
        await capacity

    async def _device_list(self, number: int) -> None:
        """Add a device: the agent publishes it, and its publication is the operator's event."""
        status = asyncio.create_task(self.sent("PATCH", "nodedevices", "status"))
        capacity = asyncio.create_task(self.sent("PATCH", f"nodes/{NODE}/status"))
        await asyncio.sleep(0)
        start = time.monotonic_ns()
        await self.plugin.update({f"d{index}": FakeDevice() for index in range(number + 1)})
        published = await status
        self.walks[DEVICE_LIST].spans.append((start, published))
        self.walks[CAPACITY].spans.append((published, await capacity))

    def _pod(self, number: int) -> Json:
        container = {"name": "main", "image": "none", "resources": {"limits": {RESOURCE: "1"}}}
        metadata = {"name": f"pod-{number}", "namespace": "default", "uid": f"uid-{number}"}
        return {"metadata": metadata, "spec": {"nodeName": NODE, "containers": [container]}, "status": {}}


@asynccontextmanager
async def _running(root: Path, folder: Path, kubeconfig: Path) -> AsyncIterator[None]:
    settings = (root / "node-agent/src/nodedevice_agent/settings.py").read_text()
    # older trees have the former name of the flag
    delivery = "--delivery" if "\n    delivery: " in settings else "--runtime"
    agent = {"--node-name": NODE, "--plugin-dir": folder / "p", "--state-dir": folder / "s", delivery: "nri"}
    agent |= {"--nri-socket": folder / "nri.sock", "--http-address": "127.0.0.1:0"}
    operator = {"--http-address": "127.0.0.1:0", "--namespace": "default"}
    programs = []
    for name, flags, more in (("agent", agent, ()), ("operator", operator, ("--no-required-plugins",))):
        traces = folder / name
        traces.mkdir()
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent / "traced"), "WALK_TRACE": str(traces)}
        command = [root / f".venv/bin/nodedevice-{name}", "run", "--kubeconfig", kubeconfig, *more]
        command += [part for flag in flags.items() for part in flag]
        with (folder / f"{name}.log").open("wb") as log:
            programs.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
    try:
        yield
    except BaseException:
        for name in ("agent", "operator"):
            print(f"-- {name}", (folder / f"{name}.log").read_text()[-3000:], sep="\n", file=sys.stderr)
        raise
    finally:
        for program in programs:
            program.kill()
            program.wait()


def _read(traces: Path) -> list[Entry]:
    found = []
    for file in traces.glob("*.trace"):
        for line in file.read_text().splitlines():
            at, thread, kind, source, number, function = line.split("\t")
            found.append(Entry(int(at), thread, kind == "call", source, int(number), function))
    return sorted(found, key=lambda entry: entry.at_ns)


async def trace(root: Path) -> list[Walk]:
    """Run the programs of that tree and count their walks."""
    with tempfile.TemporaryDirectory(prefix="walks-") as name, serving(PlayedApi()) as api:
        folder = Path(name)
        async with FakeRuntime(folder / "nri.sock") as runtime:
            cluster = Cluster(folder, api, runtime)
            async with _running(root, folder, kubeconfig(folder, api.address, token="any")):
                await cluster.measure()
            await cluster.plugin.stop()
        traces = {program: _read(folder / program) for program in ("agent", "operator")}
    for walk in cluster.walks.values():
        walk.count(traces[_WALKS[walk.name][0]], root)
    return list(cluster.walks.values())


def show(walks: Iterable[Walk]) -> None:
    print("| walk | files | climbs | pass-throughs |\n|---|---|---|---|")
    for walk in walks:
        counts = " | ".join(str(count) for count in walk.to_json()["counts"].values())
        print(f"| {_WALKS[walk.name][1]} | {counts} |")
    for walk in walks:
        print(f"\n{_WALKS[walk.name][1]}:")
        print(*(f"  {file}" for file in walk.files), sep="\n")
        print(*(f"  climb: {name}" for name in walk.climbs), *(f"  pass: {name}" for name in walk.passes), sep="\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--root", type=Path, default=REPOSITORY, help="the tree whose .venv has the programs")
    root = parser.parse_args().root.resolve()
    walks = asyncio.run(trace(root))
    out = REPOSITORY / "build/walks.json"
    out.parent.mkdir(exist_ok=True)
    measured = {"root": str(root), "at": datetime.now(UTC).isoformat(), "walks": [walk.to_json() for walk in walks]}
    out.write_text(json.dumps(measured, indent=1) + "\n")
    show(walks)


if __name__ == "__main__":
    main()
