"""Lines that help against several things, or that are long. Pure."""

from typing import Final

DESCRIBE: Final = "kubectl describe pod {pod} --namespace {namespace}"
DELETE: Final = "kubectl delete pod {pod} --namespace {namespace}"
NODES_PODS: Final = "kubectl get pods --all-namespaces --output wide --field-selector spec.nodeName={node}"
AGENT_PODS: Final = "kubectl get pods --namespace {system} --output wide --field-selector spec.nodeName={node}"
DEVICES: Final = "kubectl nodedevice devices {resource_options}"
OWNERS: Final = "kubectl get node {node} --output yaml --show-managed-fields"
QUOTA: Final = "kubectl describe resourcequota {quota} --namespace {namespace}"
