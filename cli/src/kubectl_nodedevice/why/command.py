"""The command `why`, with what it can be asked about."""

import click

from kubectl_nodedevice.errors import FINE, NEEDS_YOU, CliError, UsageProblem
from kubectl_nodedevice.session import Command, Session, current, shared_options
from kubectl_nodedevice.why import absent, answer, gather, pods
from kubectl_nodedevice.why.access import Reader
from kubectl_nodedevice.why.explanation import Explanation


@click.group()
def why() -> None:
    """Why a pod waits, a node gives no devices, or a device is not free.

    Exit status: 0 where nothing is known to be in the way, 1 where something is, 2 where it cannot be found out.
    """


why.params += shared_options()


@why.command(cls=Command)
@click.argument("name")
@click.pass_context
def pod(context: click.Context, name: str) -> int:
    """What keeps pod NAME from running with its devices, first things first, and the line that would help."""
    session = current(context)
    namespace, name = _named(session, name)
    found = gather.of_pod(session, namespace, name)
    explained = pods.explain(found) if found.pod else absent.explain(found)
    if explained is None:
        meant = absent.similar(found)
        remedy = f"did you mean {', '.join(meant)}?" if meant else "kubectl get pods --all-namespaces has all names"
        raise CliError(f"there is no pod {name} in namespace {namespace}, and no Event of one that was refused", remedy)
    return _answer(session, explained, namespace)


def _named(session: Session, name: str) -> tuple[str, str]:
    """Namespace and name. Raises UsageProblem."""
    kind, slash, rest = name.rpartition("/")
    if slash and kind not in ("pod", "pods", "po"):
        raise UsageProblem(f"{name} names no pod", f"write: kubectl nodedevice why pod {rest} --namespace {kind}")
    return session.namespace or "default", rest


def _answer(session: Session, found: Explanation, namespace: str = "") -> int:
    reader = Reader(session, namespace)
    answer.show(session.screen, found, reader.may, session.now)
    return NEEDS_YOU if found.is_stopped else FINE
