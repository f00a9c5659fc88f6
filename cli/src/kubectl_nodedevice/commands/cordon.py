"""`kubectl nodedevice cordon` and `uncordon`: take devices out of service, and give them back.

Each NodeDevice is changed by one patch of the version that was read, and read again where it has another one by then.
"""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import click

from kubectl_nodedevice import cordons
from kubectl_nodedevice.api import DRA, NODE_DEVICES, path_of
from kubectl_nodedevice.cluster import ALL_DEVICES, BY_DRA, BY_KUBELET, Cordon, NodeDevice
from kubectl_nodedevice.cordons import Change, Done
from kubectl_nodedevice.devices import cordon_words
from kubectl_nodedevice.errors import FAILED, FINE, NEEDS_YOU, ApiError, Conflict, LoginProblem, UsageProblem
from kubectl_nodedevice.fields import list_of, text_of
from kubectl_nodedevice.missing import nothing_of
from kubectl_nodedevice.objects import node_device_of
from kubectl_nodedevice.reading import Reader
from kubectl_nodedevice.session import Command, Session, current
from kubectl_nodedevice.text import counted, plain, some

_MOST_TRIES: Final = 20
_POLL_SECONDS: Final = 0.25
_REVIEW: Final = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
# bounds of the CRD
_LONGEST_NAME, _LONGEST_REASON = 128, 1024

Decide = Callable[[NodeDevice, Sequence[str]], Change]


@dataclass
class _Work:
    """What both commands share. decide: what to change of a NodeDevice. wait_seconds: for its effect."""

    session: Session
    reader: Reader
    decide: Decide
    wait_seconds: float


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option(
            "--wait", default=15.0, type=click.FloatRange(0, 3600), help="Seconds to wait for the effect; default 15."
        ),
        click.option("--take-over", is_flag=True, help="Another's cordon, too."),
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
@click.option("--reason", required=True, metavar="TEXT", help="Why, for the others.")
@click.option("--by", default="", metavar="NAME", help="Who; default: your name at the API server.")
@click.pass_context
def cordon(context: click.Context, /, reason: str, by: str, **options: Any) -> int:
    """Take devices of NODE out of service, with your name, the time and the reason. What is held stays until its pod ends."""
    session = current(context)
    reason = plain(reason).strip()
    if not reason or len(reason) > _LONGEST_REASON:
        raise UsageProblem(f"--reason has {len(reason):,} characters", f"it needs 1 to {_LONGEST_REASON:,}")
    who = _name(session, by)
    at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def decide(found: NodeDevice, device_ids: Sequence[str]) -> Change:
        return cordons.cordon(found, device_ids, Cordon("", reason, who, at), takes_over=options["take_over"])

    return _run(session, decide, "cordon", options)


@click.command(cls=Command)
@_options
@click.option("--by", default="", metavar="NAME", help="Whose cordons are yours; default: your name at the API server.")
@click.pass_context
def uncordon(context: click.Context, /, by: str, **options: Any) -> int:
    """Give devices of NODE back, which you have cordoned; another's only with --take-over."""
    session = current(context)
    who = _name(session, by)

    def decide(found: NodeDevice, device_ids: Sequence[str]) -> Change:
        return cordons.uncordon(found, device_ids, who, takes_over=options["take_over"])

    return _run(session, decide, "uncordon", options)


def _name(session: Session, given: str) -> str:
    """Who the person is, as the API server knows them. Raises ApiError, LoginProblem."""
    if given:
        name = given
    else:
        try:
            body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
            name = text_of(session.api.post("your own name", _REVIEW, body), "status", "userInfo", "username")
        except ApiError as exc:
            # an API server older than 1.28, or one that keeps it secret: but a login that is none ends it here
            if exc.status in (0, 401):
                raise
            name = session.flags.as_user or session.login.user
    name = plain(name).strip()[:_LONGEST_NAME]
    if not name:
        raise LoginProblem("your own name is not known here", "give it by --by")
    return name


def _run(session: Session, decide: Decide, verb: str, options: dict[str, Any]) -> int:
    work = _Work(session, Reader(session.api, session.screen), decide, options["wait"])
    node, resource, device_ids = options["node"], options["resource"], list(dict.fromkeys(options["device_ids"]))
    if options["all_nodes"]:
        if node or device_ids or not resource:
            raise UsageProblem("--all-nodes is of one whole resource", f"{verb} --resource NAME --all-nodes")
        return _all_nodes(work, resource, verb, is_sure=options["is_sure"])
    if not node or not device_ids:
        raise UsageProblem(
            "which devices, of which node?", f"{verb} NODE --device ID; {verb} --resource NAME --all-nodes"
        )
    found = work.reader.node_devices(node, resource)
    if not found:
        raise nothing_of(work.reader, node, resource)
    chosen = cordons.targets(found, device_ids)
    for each, ids in chosen:
        if not _lifts(verb, each):
            _check_served(session, each, ids)
    lines = [line for each, ids in chosen for line in _one(work, each, ids)]
    return _report(session, lines)


def _lifts(verb: str, found: NodeDevice) -> bool:
    """Whether there are cordons to lift, whoever gives the devices out by now."""
    return verb == "uncordon" and bool(found.cordons)


def _check_served(session: Session, found: NodeDevice, device_ids: Sequence[str]) -> None:
    """Raises UsageProblem where a cordon has no effect."""
    has_rules = found.served_by == BY_DRA and _has_rules(session)
    cordons.check_served(found, device_ids, has_rules=has_rules)


def _has_rules(session: Session) -> bool:
    """Whether the API server serves DeviceTaintRules for good, as it does since 1.37."""
    try:
        kinds = list_of(session.api.get("the kinds of DRA", DRA), "resources")
    except ApiError:
        return False
    return any(text_of(each, "name") == "devicetaintrules" for each in kinds)


@dataclass(frozen=True, slots=True)
class _Line:
    found: NodeDevice
    done: Done
    effect: str


def _one(work: _Work, found: NodeDevice, device_ids: Sequence[str]) -> list[_Line]:
    """Change one NodeDevice, and wait for the effect."""
    before = found
    change, found = _apply(work, found, device_ids)
    found = _wait(work, found, before, change)
    late = f"not in force yet: its agent has not reported it; kubectl nodedevice why node {found.node}"
    lines = []
    for done in change.done:
        seen = cordons.is_in_force(found, done, before) or not cordons.is_alive(found)
        lines.append(_Line(found, done, cordons.effect(found, done, work.reader.now) if seen else late))
    return lines


def _apply(work: _Work, found: NodeDevice, device_ids: Sequence[str]) -> tuple[Change, NodeDevice]:
    """What was done, and the object after it. Raises ApiError."""
    for attempt in range(_MOST_TRIES):
        change = work.decide(found, device_ids)
        if not change.patch:
            return change, found
        try:
            what = f"{NODE_DEVICES} {found.name}"
            answer = work.session.api.patch(what, path_of(NODE_DEVICES, found.name), change.patch)
            return change, node_device_of(answer)
        except Conflict:
            # its status changes while pods come and go; each time a little later, as the other one tries again, too
            time.sleep(0.05 * attempt)
            found = work.reader.node_device(found.name)
    problem = f"{NODE_DEVICES} {found.name} was changed {_MOST_TRIES} times while its cordons were"
    raise Conflict(problem, "try again", 409)


def _wait(work: _Work, found: NodeDevice, before: NodeDevice, change: Change) -> NodeDevice:
    """The object once its agent has honoured the change, or as it is when the time is over."""
    give_up_at = time.monotonic() + work.wait_seconds
    while not all(cordons.is_in_force(found, each, before) for each in change.done):
        if time.monotonic() >= give_up_at or not cordons.is_alive(found):
            break
        work.session.screen.progress(f"waiting for the agent of {found.node}")
        time.sleep(_POLL_SECONDS)
        found = work.reader.node_device(found.name)
    return found


def _report(session: Session, lines: Sequence[_Line]) -> int:
    screen = session.screen
    screen.end_progress()
    if screen.is_for_machines:
        screen.data("CordonReport", {"items": [_data(line) for line in lines]})
    else:
        for line in lines:
            effect = f"; {line.effect}" if line.effect else ""
            name = f"all devices ({line.found.resource})" if line.done.id in ALL_DEVICES else line.done.id
            screen.line(f"{name} of {line.found.node}: {line.done.text}{effect}")
    is_left = any(line.done.code in (cordons.OTHERS, cordons.UNKNOWN) for line in lines)
    return NEEDS_YOU if is_left else FINE


def _data(line: _Line) -> dict[str, Any]:
    return {
        "node": line.found.node,
        "resource": line.found.resource,
        "id": line.done.id,
        "reason": line.done.code,
        "message": line.done.text,
        "effect": line.effect,
    }


def _all_nodes(work: _Work, resource: str, verb: str, *, is_sure: bool) -> int:
    """Each node's NodeDevice in turn; one that fails does not keep the others from it."""
    session, screen = work.session, work.session.screen
    every = work.reader.node_devices(resource=resource)
    if not every:
        raise nothing_of(work.reader, "", resource)
    found = [each for each in every if each.served_by not in (BY_KUBELET, BY_DRA) or _lifts(verb, each)]
    if not found:
        _check_served(session, every[0], [])
    _confirm(f"{verb} every device of {resource} on {counted(len(found), 'node')}?", is_sure=is_sure)
    done: list[tuple[NodeDevice, Done]] = []
    failed: list[str] = []
    for number, each in enumerate(found):
        screen.progress(f"{verb}: {number:,} of {len(found):,} nodes")
        try:
            change, after = _apply(work, each, [cordons.EVERY])
        except ApiError as exc:
            if exc.status in (0, 401):
                raise
            failed.append(f"{each.node}: {exc.problem}")
            continue
        done.append((after, change.done[0]))
    screen.end_progress()
    return _report_all(work, resource, done, failed, skipped=len(every) - len(found))


def _confirm(question: str, *, is_sure: bool) -> None:
    if is_sure:
        return
    if not sys.stdin.isatty():
        raise UsageProblem(plain(question).rstrip("?") + " needs your word", "say --yes")
    click.confirm(plain(question), abort=True, err=True)


def _report_all(
    work: _Work, resource: str, done: Sequence[tuple[NodeDevice, Done]], failed: Sequence[str], *, skipped: int
) -> int:
    screen = work.session.screen
    counts: dict[str, list[str]] = {}
    for found, each in done:
        counts.setdefault(each.code, []).append(found.node)
    others = sorted({cordon_words(each.cordon) for _, each in done if each.code == cordons.OTHERS and each.cordon})
    if screen.is_for_machines:
        items = [
            {"node": found.node, "resource": resource, "id": each.id, "reason": each.code, "message": each.text}
            for found, each in done
        ]
        screen.data("CordonReport", {"items": items, "failed": list(failed)})
    else:
        words = {
            cordons.CORDONED: "cordoned",
            cordons.UNCORDONED: "uncordoned",
            cordons.UNCHANGED: "had it already",
            cordons.UNKNOWN: "not cordoned as a whole",
            cordons.OTHERS: f"cordoned already{some(others)}; --take-over changes that",
        }
        for code, nodes in counts.items():
            screen.line(f"{counted(len(nodes), 'node')} {words[code]}: {some(nodes, 5)}")
        if skipped:
            screen.line(f"{counted(skipped, 'node')} left out: nodedevice does not give {resource} out there")
        screen.line(f"Agents honour it within seconds: kubectl nodedevice devices --resource {resource}")
    for line in failed[:20]:
        screen.note(f"error: {line}")
    if failed:
        return FAILED
    return NEEDS_YOU if cordons.OTHERS in counts else FINE
