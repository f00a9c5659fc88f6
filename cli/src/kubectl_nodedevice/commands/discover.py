"""`kubectl nodedevice discover NODE`: asks the node's agent which devices the node could offer."""

import subprocess
from typing import Final

import click
from nodedevice_kube.api_errors import Forbidden
from nodedevice_kube.paths import NODES, PODS

from kubectl_nodedevice import release_namespaces
from kubectl_nodedevice.cluster import Pod, Release
from kubectl_nodedevice.errors import FAILED, FINE, CliError
from kubectl_nodedevice.session import Command, Session, current
from kubectl_nodedevice.shell import typed
from kubectl_nodedevice.text import plain

_PROGRAM: Final = ("nodedevice-agent", "discover")
_OWNER: Final = "DaemonSet/"
# the agent takes up to 30 s for the devices itself
_MOST_SECONDS: Final = 90.0


@click.command(cls=Command)
@click.argument("node")
@click.pass_context
def discover(context: click.Context, node: str) -> int:
    """List the devices that NODE could offer, with the lines of configuration to paste. Asks its agent by kubectl exec."""
    session = current(context)
    namespace, _, pod = _agent(session, node).partition("/")
    if not pod:
        session.api.get(f"node {node}", NODES.path(node))
        raise CliError(f"no agent of {node} runs in a pod that you can see", _by_hand(), code="NoAgentPod")
    form = ["-o", "json"] if session.screen.form == "json" else []
    line = session.kubectl("exec", "-n", namespace, pod, "--", *_PROGRAM, *form)
    try:
        done = subprocess.run(line, capture_output=True, timeout=_MOST_SECONDS, check=False, stdin=subprocess.DEVNULL)
    except FileNotFoundError as exc:
        raise CliError("kubectl is not in PATH", _by_hand(typed(*line)), code="NoKubectl") from exc
    except subprocess.TimeoutExpired as exc:
        raise CliError(
            f"the agent of {node} did not respond within {_MOST_SECONDS:g} s", _by_hand(), code="Timeout"
        ) from exc
    session.screen.block(done.stdout.decode(errors="replace"))
    errors = [plain(each).strip() for each in done.stderr.decode(errors="replace").splitlines() if each.strip()]
    if done.returncode == 0:
        for each in errors:
            session.screen.note(each)
        return FINE
    reason = errors[-1] if errors else f"kubectl ended with status {done.returncode}"
    session.screen.fail(CliError(f"the agent of {node} could not be asked: {reason}", _by_hand()))
    return FAILED


def _agent(session: Session, node: str) -> str:
    """Return namespace and name of the agent's running pod on that node, or "".

    Its output is pasted into settings. So the pod must be in the release's namespace, belong to a DaemonSet, and have the agents'
    account: a tenant cannot create such a pod.
    """
    query = {"labelSelector": release_namespaces.AGENTS, "fieldSelector": f"spec.nodeName={node}"}
    # not by DaemonSets, which a tenant can label as ours
    release = release_namespaces.bound(session.api) or Release()
    namespace = session.flags.namespace or release.namespace
    try:
        for found in session.api.records(Pod, "pods", PODS.path(namespace=namespace), query):
            is_agent = found.account == release_namespaces.ACCOUNT and found.meta.owner.startswith(_OWNER)
            if is_agent and found.phase == "Running" and not found.meta.deleted:
                return f"{namespace}/{found.meta.name}"
    except Forbidden as exc:
        raise CliError(exc.problem, _by_hand(), code="Forbidden") from exc
    return ""


def _by_hand(line: str = "") -> str:
    return f"type: {line}" if line else f"type on the node, as root: {typed(*_PROGRAM)}"
