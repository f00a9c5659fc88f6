"""`kubectl nodedevice discover NODE`: what the node could offer, with the lines of configuration to paste. Its agent knows."""

import subprocess
from functools import partial
from typing import Final

import click
from nodedevice_kube.api_errors import Forbidden, NotFound
from nodedevice_kube.paths import NODES, PODS

from kubectl_nodedevice.cluster import Pod
from kubectl_nodedevice.errors import FAILED, FINE, CliError
from kubectl_nodedevice.fields import list_of, text_of
from kubectl_nodedevice.reading import SYSTEM_NAMESPACE
from kubectl_nodedevice.records import record_of
from kubectl_nodedevice.session import Command, Session, current
from kubectl_nodedevice.shell import typed
from kubectl_nodedevice.text import plain

_PROGRAM: Final = ("nodedevice-agent", "discover")
_AGENTS: Final = "app.kubernetes.io/name=nodedevice,app.kubernetes.io/component=agent"
# of the chart: its ClusterRoleBinding, and the account that this is for
_ACCOUNT: Final = "nodedevice-agent"
_BINDINGS: Final = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
_OWNER: Final = "DaemonSet/"
# it has 30 s for the node's devices itself
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
            f"the agent of {node} did not answer within {_MOST_SECONDS:g} s", _by_hand(), code="Timeout"
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
    """Namespace and name of the agent's pod of that node, which runs; "" where there is none.

    Its answer is pasted into settings, so no pod counts that a tenant could make: in the release's namespace, one of a DaemonSet,
    with the agents' account.
    """
    query = {"labelSelector": _AGENTS, "fieldSelector": f"spec.nodeName={node}"}
    namespace = session.flags.namespace or _release_namespace(session)
    try:
        for found in session.api.objects("pods", PODS.path(namespace=namespace), query, partial(record_of, Pod)):
            is_agent = found.account == _ACCOUNT and found.meta.owner.startswith(_OWNER)
            if is_agent and found.phase == "Running" and not found.meta.deleted:
                return f"{namespace}/{found.meta.name}"
    except Forbidden as exc:
        raise CliError(exc.problem, _by_hand(), code="Forbidden") from exc
    return ""


def _release_namespace(session: Session) -> str:
    """Of the account that may act as an agent, which an administrator alone can name; else the chart's own."""
    try:
        binding = session.api.get("clusterrolebindings", f"{_BINDINGS}/{_ACCOUNT}")
    except (Forbidden, NotFound):
        return SYSTEM_NAMESPACE
    accounts = [each for each in list_of(binding, "subjects") if text_of(each, "name") == _ACCOUNT]
    return (text_of(accounts[0], "namespace") if accounts else "") or SYSTEM_NAMESPACE


def _by_hand(line: str = "") -> str:
    return f"type: {line}" if line else f"type on the node, as root: {typed(*_PROGRAM)}"
