"""Every task that the product starts is one of three: vital, run again after a failure, or awaited by what has started it.

The first two say so where they are started, by `vital` and `retried`, with a name that is listed here. All others are listed with
who takes their failure; so are callbacks of the event loop, which logs what they raise and goes on without them, and threads.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.unit.sources import ROOT, parsed, shown

SOURCES: Final = [
    path
    for folder in ("common", "node-agent", "operator", "proto")
    for path in sorted((ROOT / folder / "src").rglob("*.py"))
    if "_pb2" not in path.name
]

# What ends the process, and why nothing goes on without it.
VITAL: Final = {
    "agent": {
        "agent": "all of it, its start included",
        "beat": "/healthz, and which watches are stale",
        "device manager": "allocations, and its timers",
        "ends of containers": "whose devices are free again",
        "files of the kubelet": "one watch for all resources of --runtime kubelet",
        "lease": "whether this agent is alive, and the only one",
        "nri": "what containers get",
    },
    "operator": {
        "beat": "/healthz",
        "election": "whether it may write",
        "leases": "which agents are alive",
        "reconcile": "capacity of Nodes; a node that fails is tried again by the work queue",
        "watch-{kind}": "Nodes, NodeDevices, PodDevices as they are",
        "watchdog": "ends the process where a watch is stale",
    },
    "extender": {
        "activity": "whether it has read everything",
        "beat": "/healthz",
        "binds": "which parts are promised",
        "election": "whether it may bind",
        "followed-lease": "whether it takes part in the election",
        "port": "the answers to kube-scheduler",
        "watch-{kind}": "pods and NodeDevices as they are",
        "watchdog": "ends the process where a watch is stale",
    },
}
# What is run again: it is for showing, or for one plugin, object or feature.
RETRIED: Final = {
    "agent": {
        *("configs", "device numbers", "dra claims", "dra holders", "dra slices", "gpus", "holdings"),
        *("kubelet endpoint", "kubelet observer", "kubelet state"),
        *("node", "nodedevice", "plugin", "plugin connection", "plugin registry", "plugins"),
        *("memory", "offered twice", "parked nodedevices", "pods", "pods of the kubelet"),
        *("registration socket", "registry socket"),
    },
    "operator": {
        *("configs", "events", "evictions", "gone-nodedevices", "node-labels", "policy", "watch-configs"),
        *("shared-slices", "watch-policy", "watch-{kind}"),
    },
}
# One object of many, in a loop.
APART: Final = {
    "agent": {
        *("file events", "files of devices", "kubelet state", "list of simulated devices"),
        *("parked nodedevice", "plugin settings"),
    },
    "operator": {"config status", "evictions", "node labels", "reports of agents"},
    "extender": {"binds of unknown outcome"},
}

# Started with neither, by file: who takes the failure.
AWAITED: Final = {
    "common/threads.py": {"in_thread(self._run)": "each request that waits for it"},
    "common/access.py": {"review(self._create, token)": "the thread that waits for its result"},
    "agent/cli/run.py": {"_run(settings)": "the command"},
    "agent/configs/watch.py": {
        "self._watches.follow('node', NodeMetadataObject, node, _NodeHandler(self._labels_are))": "the task configs",
        "self._follow_configs()": "the task configs",
        "self._work()": "the task configs",
        "self._report_unmatched()": "the task configs",
        "follow": "the task configs, which waits for it",
        "self._list_needed(lists)": "the task configs, which waits for it",
    },
    "agent/deviceplugin/host.py": {
        "self._follow_plugin(endpoint, connection)": "itself; the rest is the device manager's, and ends the agent",
        "self._sync_holdings(resource_name)": "the task holdings in it",
        "connection.answers.work(connection.ask)": "itself; the rest is the device manager's, and ends the agent",
        "call": "itself; the rest is the device manager's, and ends the agent",
    },
    "agent/deviceplugin/plugin_watcher.py": {"self._run(path, self._sockets[path])": "the task registry socket in it"},
    "agent/dra/observer.py": {
        "self._work()": "the task dra slices",
        "self._keep_names()": "the task dra slices",
        "self._elsewhere.run()": "the task dra slices",
        "self._follow()": "the task dra slices",
    },
    "agent/dra/served.py": {"self._observe": "the event loop, which logs it: metrics alone"},
    "agent/kube/informer.py": {
        "self._catch_up()": "the watch, at the next event",
        "self._read_outdated()": "the watch, at the next event",
    },
    "agent/kube/nodedevice.py": {"watch": "the task nodedevice", "self._write()": "the task nodedevice"},
    "agent/kube/parked.py": {"self._visited(name)": "itself, apart; the rest is the task parked nodedevices"},
    "agent/kubelet/backend.py": {
        "run": "itself: it is the task kubelet endpoint",
        "self.keep_advertised()": "the task kubelet endpoint",
        "socket.run()": "the task kubelet endpoint",
        "self._until(lambda: not self._is_advertised or self._options != options)": "the task kubelet endpoint",
    },
    "agent/kubelet/observer.py": {
        "self._read_capacities()": "the task kubelet observer",
        "self._make_lists()": "the task kubelet observer",
    },
    "agent/lib/shared_calls.py": {"self._begin()": "each caller that waits for it"},
    "agent/nri/session.py": {"self._register()": "the task nri"},
    "agent/nri/ttrpc.py": {"self._finish(number, request.method, response, seconds)": "itself: it is an answer"},
    "agent/offered_twice/host.py": {"self._read(frozenset(paths), frozenset(cdi))": "itself, apart"},
    "agent/plugins/nvml/cdi_specs.py": {"self._refresh()": "the task plugin"},
    "agent/plugins/nvml/reader/process.py": {
        "self._listen()": "the task gpus",
        "self._succeed()": "the task gpus",
        "reader.next_message()": "the task gpus",
        "reader.ended()": "the task gpus",
    },
    "agent/runtime/device_ownership.py": {"self._read()": "the creation of a container, which waits for it"},
    "agent/plugins/nvml/watch.py": {
        "self._watch_files()": "the task plugin",
        "self._keep_reading()": "the task plugin",
        "self._keep_remembered()": "the task plugin",
        "self._watch_specs()": "the task plugin",
        "self._check_specs()": "the task plugin",
        "self._release.follow()": "the task plugin",
        "self._release.requested()": "the task plugin",
        "doing": "the task plugin",
    },
    "agent/plugins/run.py": {
        "source.run()": "the task plugin",
        "socket.run()": "the task plugin",
        "_served(GPUS, watch.run)": "the task plugin in it",
        "_served(source.resource_name, serving)": "the task plugin in it",
        "self._serve(name, running, watcher)": "the task plugin or gpus in it",
    },
    "operator/cli/cleanup.py": {"election.work()": "the command", "self.progress.retrying(action)": "the command"},
    "operator/config_watch.py": {"self._run_kopf(stop)": "the task watch-configs"},
    "operator/extender/connections.py": {
        "self._connect(connection, peer)": "itself: a connection is its client's own affair"
    },
    "operator/extender/process.py": {"work": "it is one of those above"},
    "operator/leases/elector.py": {"send()": "the task election"},
    "operator/shared_slices.py": {"informer.work()": "the task shared-slices"},
    "operator/operator.py": {"life": "kopf, which ends the process", "work": "it is one of those above"},
}
# Callbacks that can do no more than wake a task, or that take what they raise themselves.
CALLBACKS: Final = {
    "agent/deviceplugin/answers.py": {"self._beat": "counts"},
    "common/api_connections.py": {"self.end": "ends a connection"},
    "common/tasks.py": {"is_well": "resets a pause"},
    "common/threads.py": {
        "lambda done: done.cancelled() or done.exception()": "looks at the failure, which those who wait get"
    },
    "agent/checkpoint/writer.py": {
        "self._start": "tries again, whatever is raised",
        "self._request_whole": "requests a write",
        "callback": "_failed or _saved, which request the next write",
    },
    "common/paced_log.py": {"self.flush": "logs"},
    "agent/deviceplugin/host.py": {"self._tick": "passes what is raised to the task device manager"},
    "agent/kube/write_queue.py": {"self._give_turns": "wakes tasks"},
    "agent/kube/turns.py": {"self._give": "wakes tasks"},
    "agent/kubelet/backend.py": {"self._set_registration": "notes a state, and enqueues a write"},
    "agent/dra/served.py": {"self._observe": "sets gauges"},
    "agent/lib/file_watcher.py": {"self.dispatch": "wakes tasks"},
    "agent/nri/session.py": {"self._mux.close": "ends a connection"},
    "agent/nri/ttrpc.py": {
        "self._tasks.discard": "forgets a task",
        "lambda _: response.close()": "ends a coroutine",
        "self._handle_waiting": "answers with what is raised",
    },
    "agent/plugins/generic/uevents.py": {
        "self._listen": "tries again later, whatever the system refuses",
        "self._read": "wakes a task",
    },
    "agent/plugins/nvml/watch.py": {"self._grace_over": "publishes GPUs as unhealthy, as each message does"},
    "agent/runtime/backend.py": {"self._grace_ended": "notes a state, and enqueues writes"},
    "operator/config_watch.py": {"self.keep_signals": "takes signals"},
    "operator/extender/connections.py": {
        "self._read": "a connection is its client's own affair",
        "self._reject": "closes a connection",
        "self._begin_next": "as self._read; the next connection calls it again",
    },
    "operator/extender/process.py": {"lambda _: self._stop.set()": "ends the process"},
    "operator/observability/recorder.py": {
        "self._gathered": "enqueues an Event",
        "self._post_summed": "as self._post_counted",
        "self._post_counted": "enqueues an Event",
    },
    "operator/operator.py": {
        "self._take_signals": "takes signals",
        "self._task_ended": "ends the process",
        "self._kopf.cancel": "ends kopf",
    },
    "operator/workqueue.py": {"self._timer_fired": "enqueues a node"},
}
# All others start by nodedevice_common.threads, where a thread that cannot be started is an error of the system, or awaited.
THREADS: Final = {
    "common/threads.py": 2,
    "agent/plugins/nvml/reader/__main__.py": 2,  # a process of its own, which is started again
    "agent/plugins/nvml/reader/events.py": 1,  # of that process
}

_STARTS: Final = frozenset({"create_task", "ensure_future", "run_coroutine_threadsafe"})
# the position of the callback
_CALLBACKS: Final = {
    **dict.fromkeys(("call_soon", "call_soon_threadsafe", "add_done_callback"), 0),
    **dict.fromkeys(("call_later", "call_at", "add_reader", "add_writer", "add_signal_handler"), 1),
}
_POOLS: Final = ("ThreadPoolExecutor", "ProcessPoolExecutor")
_THREADS: Final = frozenset({"Thread", "Timer", "to_thread", "run_in_executor", *_POOLS})
_WRAPPERS: Final[dict[str, Mapping[str, Iterable[str]]]] = {"vital": VITAL, "retried": RETRIED, "apart": APART}
_PROGRAMS: Final = {
    "common/src/nodedevice_common": "common",
    "kube/src/nodedevice_kube": "kube",
    "node-agent/src/nodedevice_agent": "agent",
    "operator/src/nodedevice_operator": "operator",
    "proto/src/nodedevice_api": "api",
    "cli/src/kubectl_nodedevice": "cli",
}


def short(path: Path) -> str:
    name = shown(path)
    folder = next(folder for folder in _PROGRAMS if name.startswith(folder))
    return _PROGRAMS[folder] + name.removeprefix(folder)


def program(name: str) -> str:
    return "extender" if name.startswith("operator/extender/") else name.partition("/")[0]


def calls(module: ast.Module, names: Iterable[str]) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(module):
        if isinstance(node, ast.Call):
            name = called(node)
            if name in names:
                yield name, node


def called(node: ast.Call) -> str:
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def wrapped(module: ast.Module) -> Iterator[tuple[str, str]]:
    """Wrapper and name of each task: of `vital("beat", ...)` these two."""
    for node in ast.walk(module):
        if not isinstance(node, ast.Call):
            continue
        # such as (vital if ... else retried)(name, run)
        names = {each.id for each in ast.walk(node.func) if isinstance(each, ast.Name)} & _WRAPPERS.keys()
        if names and node.args and not isinstance(node.func, ast.Attribute):
            yield from ((name, text(node.args[0])) for name in sorted(names))


def text(node: ast.expr) -> str:
    """Of a constant, or of an f-string as it is written."""
    return str(node.value) if isinstance(node, ast.Constant) else ast.unparse(node).removeprefix("f").strip("'")


def unlisted(module: ast.Module, name: str) -> Iterator[str]:
    """What is started, or called back, and is neither wrapped nor listed."""
    for _, node in calls(module, _STARTS):
        task = node.args[0]
        is_wrapped = isinstance(task, ast.Call) and called(task) in ("vital", "retried")
        if not is_wrapped and ast.unparse(task) not in AWAITED.get(name, {}):
            yield f"{name}:{node.lineno}: the task {ast.unparse(task)}"
    for kind, node in calls(module, _CALLBACKS):
        callback = ast.unparse(node.args[_CALLBACKS[kind]])
        if kind != "add_signal_handler" and callback not in CALLBACKS.get(name, {}):
            yield f"{name}:{node.lineno}: the callback {callback}"
    if len(list(calls(module, _THREADS))) != THREADS.get(name, 0):
        yield f"{name}: its threads"


def test_every_task_callback_and_thread_is_known() -> None:
    found = [each for path in SOURCES for each in unlisted(parsed(path), short(path))]
    assert not found, "\n".join(["start it by vital or retried, or list who takes its failure:", *found])


@pytest.mark.parametrize("wrapper", _WRAPPERS)
def test_the_lists_are_those_of_the_product(wrapper: str) -> None:
    found: dict[str, set[str]] = {}
    for path in SOURCES:
        if short(path) == "common/tasks.py" or path.name == "vital.py":
            continue
        for name, task in wrapped(parsed(path)):
            if name == wrapper:
                found.setdefault(program(short(path)), set()).add(task)
    assert found == {key: set(names) for key, names in _WRAPPERS[wrapper].items()}


@pytest.mark.parametrize("table", [AWAITED, CALLBACKS], ids=["tasks", "callbacks"])
def test_nothing_is_listed_that_is_gone(table: dict[str, dict[str, str]]) -> None:
    sources = {short(path): ast.unparse(parsed(path)) for path in SOURCES if short(path) in table}
    gone = [f"{name}: {task}" for name, tasks in table.items() for task in tasks if task not in sources.get(name, "")]
    assert not gone


@pytest.mark.parametrize(
    "source",
    [
        "tasks.create_task(self.run())",
        "asyncio.ensure_future(work)",
        "loop.call_later(1.0, self.work)",
        "loop.call_soon(work)",
        "threading.Thread(target=work).start()",
        "asyncio.to_thread(work)",
        "loop.run_in_executor(None, work)",
    ],
)
def test_a_new_one_is_found(source: str) -> None:
    assert list(unlisted(ast.parse(source), "agent/agent.py"))
