"""Commands that help against several obstacles. Pure."""

from typing import Final

from kubectl_nodedevice.why.reasons import rights
from kubectl_nodedevice.why.reasons.rights import Role
from kubectl_nodedevice.why.reasons.row import Line

_PODS_ON: Final = "--output wide --field-selector spec.nodeName={node}"

DESCRIBE_POD: Final = Line("kubectl describe pod {pod} --namespace {namespace}", Role.VIEW, rights.OWN_POD)
DELETE_POD: Final = Line("kubectl delete pod {pod} --namespace {namespace}", Role.EDIT, rights.DELETE_POD)
PODS_OF_NODE: Final = Line(f"kubectl get pods --all-namespaces {_PODS_ON}", Role.ADMIN, rights.ALL_PODS)
AGENT_POD: Final = Line(f"kubectl get pods --namespace {{system}} {_PODS_ON}", Role.FLEET_VIEW, rights.SYSTEM_PODS)
NODES: Final = Line("kubectl get nodes", Role.FLEET_VIEW, rights.NODES)
NODE: Final = Line("kubectl describe node {node}", Role.FLEET_VIEW, rights.NODES)
OWNERS: Final = Line("kubectl get node {node} --output yaml --show-managed-fields", Role.FLEET_VIEW, rights.NODES)
UNTAINT: Final = Line("kubectl taint node {node} {taint}-", Role.ADMIN, rights.PATCH_NODE)
NODE_DEVICE: Final = Line("kubectl describe nodedevice {node_device}", Role.FLEET_VIEW, rights.FLEET)
ALL_DEVICES: Final = Line("kubectl nodedevice devices", Role.FLEET_VIEW, rights.FLEET)
DEVICES: Final = Line("kubectl nodedevice devices {resource_options}", Role.FLEET_VIEW, rights.FLEET)
NODES_DEVICES: Final = Line("kubectl nodedevice devices --node {node}", Role.FLEET_VIEW, rights.FLEET)
UNCORDON: Final = Line(
    "kubectl nodedevice uncordon {node} --resource {resource} {device_options}", Role.CORDON, rights.CORDON
)
