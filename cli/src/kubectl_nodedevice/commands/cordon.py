"""`kubectl nodedevice cordon` and `uncordon`: take devices out of service, and return them to service.

Each NodeDevice is changed by one patch of the version that was read. After a conflict it is read again.
"""

import contextlib
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import click
from nodedevice_kube.api_errors import ApiError, Conflict
from nodedevice_kube.fields import list_of, text_of
from nodedevice_kube.paths import base

from kubectl_nodedevice import cordons
from kubectl_nodedevice.api import DRA, GROUP, NODE_DEVICES, path_of
from kubectl_nodedevice.cluster import ALL_DEVICES, BY_DRA, BY_KUBELET, Cordon, NodeDevice
from kubectl_nodedevice.cordons import Change, Done
from kubectl_nodedevice.device_state import cordon_words
from kubectl_nodedevice.errors import FAILED, FINE, INTERRUPTED, NEEDS_YOU, CliError, UsageProblem
from kubectl_nodedevice.output import Failure, Screen
from kubectl_nodedevice.reading import Reader
from kubectl_nodedevice.records import record_of
from kubectl_nodedevice.session import Command, Session, current
from kubectl_nodedevice.shell import Typed, typed
from kubectl_nodedevice.suggestions import nothing_of
from kubectl_nodedevice.text import counted, plain, some
from kubectl_nodedevice.whoami import own_name

_MOST_TRIES: Final = 20
_POLL_SECONDS: Final = 0.25
# nodes that are named one by one
_MOST_SHOWN: Final = 20
# bound of the CRD
_LONGEST_REASON: Final = 1024

Decide = Callable[[NodeDevice, Sequence[str]], Change]


@dataclass
class _Work:
    """The state of one command. decide: plans the change of a NodeDevice. wait_seconds: for the effect.

    stopped_by: what ended the work early.
    """

    session: Session
    reader: Reader
    decide: Decide
    wait_seconds: float
    stopped_by: Failure | KeyboardInterrupt | None = None


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option(
            "--wait", default=15.0, type=click.FloatRange(0, 3600), help="Seconds to wait for the effect; default 15."
        ),
        click.option("--take-over", is_flag=True, help="Also change cordons of other people."),
        click.option("--yes", "-y", "is_sure", is_flag=True, help="Do not ask, with --all-nodes."),
        click.option("--all-nodes", is_flag=True, help="Every device of the resource, on every node."),
        click.option("--resource", default="", metavar="NAME", help="Of this resource, where a node has several."),
        click.option(
            "--device",
            "device_ids",
            multiple=True,
            metavar="ID",
            help="A device; several times for several; '*' for all.",
        ),
        click.argument("node", default=""),
    ):
        command = option(command)
    return command


@click.command(cls=Command)
@_options
@click.option("--reason", required=True, metavar="TEXT", help="Why, for other people.")
@click.option("--by", default="", metavar="NAME", help="Who; default: your name at the API server.")
@click.pass_context
def cordon(context: click.Context, /, reason: str, by: str, **options: Any) -> int:
    """Take devices of NODE out of service, with your name, the time and the reason. Running pods keep their devices."""
    session = current(context)
    reason = plain(reason).strip()
    if not reason or len(reason) > _LONGEST_REASON:
        raise UsageProblem(f"--reason has {len(reason):,} characters", f"it needs 1 to {_LONGEST_REASON:,}")
    who = own_name(session, by)
    at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def decide(found: NodeDevice, device_ids: Sequence[str]) -> Change:
        return cordons.cordon(found, device_ids, Cordon("", reason, who, at), takes_over=options["take_over"])

    return _run(session, decide, "cordon", options)


@click.command(cls=Command)
@_options
@click.option("--by", default="", metavar="NAME", help="Whose cordons are yours; default: your name at the API server.")
@click.pass_context
def uncordon(context: click.Context, /, by: str, **options: Any) -> int:
    """Return devices of NODE that you cordoned to service; another person's only with --take-over."""
    session = current(context)
    who = own_name(session, by)

    def decide(found: NodeDevice, device_ids: Sequence[str]) -> Change:
        return cordons.uncordon(found, device_ids, who, takes_over=options["take_over"])

    return _run(session, decide, "uncordon", options)


def _run(session: Session, decide: Decide, verb: str, options: dict[str, Any]) -> int:
    work = _Work(session, Reader(session.api, session.screen), decide, options["wait"])
    node, resource, device_ids = options["node"], options["resource"], list(dict.fromkeys(options["device_ids"]))
    if options["all_nodes"]:
        if node or device_ids or not resource:
            raise UsageProblem(
                "--all-nodes needs --resource, and neither NODE nor --device", f"{verb} --resource NAME --all-nodes"
            )
        return _all_nodes(work, resource, verb, is_sure=options["is_sure"])
    if not node or not device_ids:
        raise UsageProblem(
            "NODE and --device are missing", f"{verb} NODE --device ID; {verb} --resource NAME --all-nodes"
        )
    found = work.reader.node_devices(node, resource)
    if not found:
        raise nothing_of(work.reader, node, resource)
    chosen = cordons.targets(found, device_ids)
    for each, ids in chosen:
        if not _lifts(verb, each):
            _check_served(session, each, ids)
    lines: list[_Line] = []
    with _until_stopped(work):
        for each, ids in chosen:
            lines += _one(work, each, ids)
            if work.stopped_by:
                break
    if not lines and isinstance(work.stopped_by, CliError | ApiError):
        raise work.stopped_by
    return _status(work, _report(work, lines))


@contextlib.contextmanager
def _until_stopped(work: _Work) -> Iterator[None]:
    """Note an error or Ctrl-C, which ends the work. The changes until then are reported."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    except (CliError, ApiError, KeyboardInterrupt) as exc:
        work.stopped_by = exc
    finally:
        signal.signal(signal.SIGINT, before)


def _status(work: _Work, of_report: int) -> int:
    if isinstance(work.stopped_by, CliError | ApiError):
        work.session.screen.fail(work.stopped_by)
        return FAILED
    return INTERRUPTED if work.stopped_by else of_report


def _lifts(verb: str, found: NodeDevice) -> bool:
    """Whether cordons can be lifted, even if another device manager allocates the devices now."""
    return verb == "uncordon" and bool(found.cordons)


def _check_served(session: Session, found: NodeDevice, device_ids: Sequence[str]) -> None:
    has_rules = found.served_by == BY_DRA and _has_rules(session)
    cordons.check_served(found, device_ids, has_rules=has_rules)


def _has_rules(session: Session) -> bool:
    """Whether the API server serves the stable kind DeviceTaintRule (Kubernetes 1.37)."""
    try:
        kinds = list_of(session.api.get("the kinds of DRA", base(DRA)), "resources")
    except ApiError:
        return False
    return any(text_of(each, "name") == "devicetaintrules" for each in kinds)


@dataclass(frozen=True, slots=True)
class _Line:
    """is_late: the agent has not applied it in time."""

    found: NodeDevice
    done: Done
    effect: str
    is_late: bool = False

    @property
    def command(self) -> Typed:
        if self.is_late:
            return typed("kubectl", "nodedevice", "why", "node", self.found.node)
        return self.done.command


def _one(work: _Work, found: NodeDevice, device_ids: Sequence[str]) -> list[_Line]:
    before = found
    change, found = _apply(work, found, device_ids)
    found = _wait(work, found, before, change)
    lines = []
    for done in change.done:
        is_late = cordons.is_alive(found) and not cordons.is_in_force(found, done, before)
        late = "not in force yet: its agent has not reported it"
        lines.append(_Line(found, done, late if is_late else cordons.effect(found, done, work.reader.now), is_late))
    return lines


def _apply(work: _Work, found: NodeDevice, device_ids: Sequence[str]) -> tuple[Change, NodeDevice]:
    """Return the change, and the object after it. Raises ApiError."""
    for attempt in range(_MOST_TRIES):
        change = work.decide(found, device_ids)
        if not change.patch:
            return change, found
        try:
            what = f"{NODE_DEVICES} {found.name}"
            answer = work.session.api.patch(what, path_of(GROUP, NODE_DEVICES, found.name), change.patch)
            return change, record_of(NodeDevice, answer)
        except Conflict:
            # Its status changes while pods come and go. Each pause is longer than the last, as the other writer retries as well.
            time.sleep(0.05 * attempt)
            found = work.reader.node_device(found.name)
    problem = f"{NODE_DEVICES} {found.name} was changed {_MOST_TRIES} times while its cordons were"
    raise Conflict("PATCH", found.name, problem, 409, remedy="try again")


def _wait(work: _Work, found: NodeDevice, before: NodeDevice, change: Change) -> NodeDevice:
    """Return the object when its agent has applied the change, the time is over, or the wait was interrupted."""
    give_up_at = time.monotonic() + work.wait_seconds
    with _until_stopped(work):
        while not all(cordons.is_in_force(found, each, before) for each in change.done):
            if time.monotonic() >= give_up_at or not cordons.is_alive(found):
                break
            work.session.screen.progress(f"waiting for the agent of {found.node}")
            time.sleep(_POLL_SECONDS)
            found = work.reader.node_device(found.name)
    return found


def _report(work: _Work, lines: Sequence[_Line]) -> int:
    screen = work.session.screen
    screen.end_progress()
    if screen.is_for_machines:
        screen.data("CordonReport", {"items": [_data(line) for line in lines]})
    else:
        for line in lines:
            effect = f"; {line.effect}" if line.effect else ""
            name = f"all devices ({line.found.resource})" if line.done.id in ALL_DEVICES else line.done.id
            screen.line(f"{name} on {line.found.node}: {line.done.text}{effect}")
            if line.command:
                screen.command(line.command)
    return NEEDS_YOU if any((line.is_late and work.wait_seconds) or _is_left(line.done) for line in lines) else FINE


def _is_left(done: Done) -> bool:
    return done.code in (cordons.OTHERS, cordons.UNKNOWN) or bool(done.left)


def _data(line: _Line) -> dict[str, Any]:
    return {
        "node": line.found.node,
        "resource": line.found.resource,
        "id": line.done.id,
        "reason": line.done.code,
        "message": line.done.text,
        "effect": line.effect,
        "command": line.command,
    }


def _all_nodes(work: _Work, resource: str, verb: str, *, is_sure: bool) -> int:
    """Change each node's NodeDevice in turn. A failure on one node does not stop the others."""
    session, screen = work.session, work.session.screen
    every = work.reader.node_devices(resource=resource)
    if not every:
        raise nothing_of(work.reader, "", resource)
    found = [each for each in every if each.served_by not in (BY_KUBELET, BY_DRA) or _lifts(verb, each)]
    if not found:
        _check_served(session, every[0], [])
    _confirm(f"{verb} every device of {resource} on {counted(len(found), 'node')}?", is_sure=is_sure)
    all_done = _AllDone(verb, resource, skipped=len(every) - len(found))
    with _until_stopped(work):
        for number, each in enumerate(found):
            screen.progress(f"{verb}: {number:,} of {len(found):,} nodes")
            all_done.not_tried = len(found) - number - 1
            _change_one(work, each, all_done)
    screen.end_progress()
    if isinstance(work.stopped_by, CliError | ApiError) and not (all_done.done or all_done.failed):
        raise work.stopped_by
    return _status(work, _report_all(work, all_done))


@dataclass
class _AllDone:
    """The results on all nodes. failed: sentences. skipped: nodes on which another device manager allocates the resource."""

    verb: str
    resource: str
    skipped: int
    done: list[tuple[NodeDevice, Done]] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    not_tried: int = 0


def _change_one(work: _Work, found: NodeDevice, all_done: _AllDone) -> None:
    """Raises errors that end the work: no response, no login, or Ctrl-C."""
    try:
        change, after = _apply(work, found, [cordons.EVERY])
    except KeyboardInterrupt:
        all_done.failed.append(f"{found.node}: interrupted: whether it is {all_done.verb}ed is not known")
        raise
    except (ApiError, CliError) as exc:
        is_unanswered = isinstance(exc, ApiError) and exc.status == 0
        ends_work = is_unanswered or isinstance(exc, CliError)
        if ends_work and not (all_done.done or all_done.failed):
            # The first node: the error alone is the report.
            raise
        unknown = f": whether it is {all_done.verb}ed is not known" if is_unanswered else ""
        all_done.failed.append(f"{found.node}: {exc.problem}{unknown}")
        if ends_work:
            raise
    else:
        all_done.done.append((after, change.done[0]))


def _confirm(question: str, *, is_sure: bool) -> None:
    if is_sure:
        return
    if not sys.stdin.isatty():
        raise UsageProblem(plain(question).rstrip("?") + " needs confirmation", "add --yes")
    click.confirm(plain(question), abort=True, err=True)


def _report_all(work: _Work, found: _AllDone) -> int:
    screen = work.session.screen
    if screen.is_for_machines:
        items = [_data(_Line(each, done, "")) for each, done in found.done]
        screen.data("CordonReport", {"items": items, "failed": found.failed, "notTried": found.not_tried})
    else:
        _show_all(screen, found)
    for line in found.failed[:_MOST_SHOWN]:
        screen.note(f"error: {line}")
    if found.failed:
        return FAILED
    return NEEDS_YOU if any(_is_left(done) for _, done in found.done) else FINE


def _show_all(screen: Screen, found: _AllDone) -> None:
    counts: dict[str, list[str]] = {}
    for each, done in found.done:
        counts.setdefault(done.code, []).append(each.node)
    others = sorted(
        {cordon_words(each.cordon) for _, each in found.done if each.code == cordons.OTHERS and each.cordon}
    )
    words = {
        cordons.CORDONED: "cordoned",
        cordons.UNCORDONED: "uncordoned",
        cordons.UNCHANGED: "had it already" if found.verb == "cordon" else "not cordoned as a whole",
        cordons.UNKNOWN: "remembered as cordoned by their agents, and cordoned again by the operator",
        cordons.OTHERS: f"cordoned already{some(others)}; --take-over changes that",
    }
    for code, nodes in counts.items():
        screen.line(f"{counted(len(nodes), 'node')} {words[code]}: {some(nodes, 5)}")
    left = [(each, done) for each, done in found.done if done.left]
    for each, done in left[:_MOST_SHOWN]:
        screen.line(f"{each.node}: {done.text}")
        screen.command(done.command)
    if len(left) > _MOST_SHOWN:
        screen.line(f"{counted(len(left) - _MOST_SHOWN, 'further node')} with devices that are cordoned one by one")
    if found.skipped:
        screen.line(f"{counted(found.skipped, 'node')} left out: nodedevice does not give {found.resource} out there")
    if found.not_tried:
        screen.line(f"{counted(found.not_tried, 'node')} not tried")
    if cordons.CORDONED in counts or cordons.UNCORDONED in counts:
        screen.line("Agents honour it within seconds:")
        screen.command(typed("kubectl", "nodedevice", "devices", "--resource", found.resource))
