"""`kubectl nodedevice discover NODE`: what the node could offer, with the lines of configuration to paste. Its agent knows."""

import shlex
import subprocess
from typing import Final

import click

from kubectl_nodedevice.api import core_path
from kubectl_nodedevice.cluster import Pod
from kubectl_nodedevice.errors import FAILED, FINE, CliError, Forbidden
from kubectl_nodedevice.objects import pod_of
from kubectl_nodedevice.reading import SYSTEM_NAMESPACE
from kubectl_nodedevice.session import Command, Session, current
from kubectl_nodedevice.text import plain

_PROGRAM: Final = ("nodedevice-agent", "discover")
_AGENTS: Final = "app.kubernetes.io/name=nodedevice,app.kubernetes.io/component=agent"
# it has 30 s for the node's devices itself
_MOST_SECONDS: Final = 90.0


@click.command(cls=Command)
@click.argument("node")
@click.pass_context
def discover(context: click.Context, node: str) -> int:
    """List the devices that NODE could offer, with the lines of configuration to paste. Asks its agent by kubectl exec."""
    session = current(context)
    pod = _agent(session, node)
    if pod is None:
        session.api.get(f"node {node}", core_path("nodes", node))
        raise CliError(f"no agent of {node} runs in a pod that you can see", _by_hand(), code="NoAgentPod")
    form = ["-o", "json"] if session.screen.form == "json" else []
    line = session.kubectl("exec", "-n", pod.meta.namespace, pod.meta.name, "--", *_PROGRAM, *form)
    try:
        done = subprocess.run(line, capture_output=True, timeout=_MOST_SECONDS, check=False, stdin=subprocess.DEVNULL)
    except FileNotFoundError as exc:
        raise CliError("kubectl is not in PATH", _by_hand(shlex.join(line)), code="NoKubectl") from exc
    except subprocess.TimeoutExpired as exc:
        raise CliError(
            f"the agent of {node} did not answer within {_MOST_SECONDS:g} s", _by_hand(), code="Timeout"
        ) from exc
    for each in done.stdout.decode(errors="replace").splitlines():
        session.screen.line(each)
    errors = [plain(each).strip() for each in done.stderr.decode(errors="replace").splitlines() if each.strip()]
    if done.returncode == 0:
        for each in errors:
            session.screen.note(each)
        return FINE
    reason = errors[-1] if errors else f"kubectl ended with status {done.returncode}"
    session.screen.fail(CliError(f"the agent of {node} could not be asked: {reason}", _by_hand()))
    return FAILED


def _agent(session: Session, node: str) -> Pod | None:
    """The agent's pod of that node that runs; of all namespaces where it is not in the chart's own."""
    query = {"labelSelector": _AGENTS, "fieldSelector": f"spec.nodeName={node}"}
    for namespace in (session.flags.namespace or SYSTEM_NAMESPACE, ""):
        try:
            found = [
                pod_of(each) for each in session.api.objects("pods", core_path("pods", namespace=namespace), query)
            ]
        except Forbidden as exc:
            raise CliError(exc.problem, _by_hand(), code=exc.code) from exc
        running = [each for each in found if each.phase == "Running" and not each.meta.deleted]
        if running:
            return running[0]
    return None


def _by_hand(line: str = "") -> str:
    typed = shlex.join(_PROGRAM)
    return f"type: {line}" if line else f"type on the node, as root: {typed}"
