"""The command `why` and its subcommands."""

import click

from kubectl_nodedevice.errors import FINE, NEEDS_YOU, CliError, UsageProblem
from kubectl_nodedevice.session import Command, Session, current, shared_options
from kubectl_nodedevice.shell import typed
from kubectl_nodedevice.text import some
from kubectl_nodedevice.whoami import own_name
from kubectl_nodedevice.why import answer, nodes, pods, read_facts
from kubectl_nodedevice.why import device as devices
from kubectl_nodedevice.why.access import rights_of
from kubectl_nodedevice.why.controllers import absent
from kubectl_nodedevice.why.explanation import Explanation
from kubectl_nodedevice.why.facts import Facts


@click.group()
def why() -> None:
    """Explain why a pod is pending, a node serves no devices, or a device is not free.

    Exit status: 0 if no obstacle is known, 1 if one is, 2 if the command failed.
    """


why.params += shared_options()


@why.command(cls=Command)
@click.argument("name")
@click.pass_context
def pod(context: click.Context, name: str) -> int:
    """Explain what keeps pod NAME from running with its devices, and show the command that helps."""
    session = current(context)
    namespace, name = _named(session, name)
    found = read_facts.of_pod(session, namespace, name)
    if found.is_absent and not absent.is_lacking(found) and not absent.obstacles(found):
        raise CliError(f"pod {name} does not exist in namespace {namespace}", absent.remedy(found))
    return _answer(session, found, pods.explain(found))


def _named(session: Session, name: str) -> tuple[str, str]:
    """Return namespace and name. Raises UsageProblem."""
    before, slash, rest = name.rpartition("/")
    if slash and before not in ("pod", "pods", "po"):
        namespace = before.rpartition("/")[2]
        raise UsageProblem(
            f"{name} names no pod",
            f"write: {typed('kubectl', 'nodedevice', 'why', 'pod', rest, '--namespace', namespace)}",
        )
    return session.namespace or "default", rest


def _answer(session: Session, facts: Facts, found: Explanation) -> int:
    found = answer.of_own_cordons(found, lambda: own_name(session))
    may = rights_of(session, facts.namespace, facts.release.namespace)
    answer.show(session.screen, found, may, facts.now)
    return NEEDS_YOU if found.is_stopped else FINE


@why.command(cls=Command)
@click.argument("name")
@click.pass_context
def node(context: click.Context, name: str) -> int:
    """Explain what keeps node NAME from serving devices to pods."""
    session = current(context)
    found = read_facts.of_node(session, name)
    if not found.nodes and not found.node_devices and not found.unread:
        raise CliError(f"node {name} does not exist", "kubectl get nodes has all names")
    return _answer(session, found, nodes.explain(found))


@why.command(cls=Command)
@click.argument("node_name", metavar="NODE")
@click.argument("device_id", metavar="ID")
@click.option("--resource", metavar="NAME", default="", help="The resource, where several of the node have that ID.")
@click.pass_context
def device(context: click.Context, node_name: str, device_id: str, resource: str) -> int:
    """Explain what keeps device ID of NODE from being allocated."""
    session = current(context)
    found = read_facts.of_node(session, node_name)
    if found.unread and not found.node_devices:
        raise CliError(f"you may not see the devices of {node_name}", "the role nodedevice-fleet-view may")
    if not found.nodes and not found.node_devices:
        raise CliError(f"node {node_name} does not exist", "kubectl get nodes has all names")
    having = [each for each in devices.resources_of(found, device_id) if resource in ("", each.resource)]
    if not having:
        known = sorted({one.id for each in found.node_devices for one in each.devices})
        remedy = (
            f"it has {some(known, 9)}"
            if known
            else f"{typed('kubectl', 'nodedevice', 'why', 'node', node_name)} says why it has none"
        )
        of_resource = f" of {resource}" if resource else ""
        raise CliError(f"node {node_name} has no device {device_id}{of_resource}", remedy)
    if len(having) > 1:
        names = " or ".join(each.resource for each in having)
        raise UsageProblem(f"several resources of {node_name} have a device {device_id}", f"add --resource, {names}")
    return _answer(session, found, devices.explain(found, having[0], device_id))
