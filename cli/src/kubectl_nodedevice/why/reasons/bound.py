"""Reasons that stop a pod on its node, by precedence. Pure."""

from typing import Final

from kubectl_nodedevice.why.reasons import lines, rights
from kubectl_nodedevice.why.reasons.rights import Access, Role
from kubectl_nodedevice.why.reasons.row import Line, Row

BOUND: Final = (
    Row(
        "WaitsOnNode",
        "It is bound to {node}, which cannot allocate {resource} yet: {words}",
        "The agent retries by itself; list the node's devices:",
        Line("kubectl nodedevice devices --node {node} {resource_options}", Role.FLEET_VIEW, rights.FLEET),
    ),
    Row(
        "WaitsForGood",
        "It is bound to {node}, which will not allocate {resource}: {words}",
        "Delete it, so that its controller creates it again:",
        lines.DELETE_POD,
    ),
    Row(
        "RequiredPluginMissing",
        "The agent is not connected to the container runtime of {node}: {words}",
        "See the agent's pod:",
        lines.AGENT_POD,
    ),
    Row(
        "ClaimNotPrepared",
        "The driver on {node} cannot prepare its devices: {words}",
        "The kubelet retries within a minute or two; find the driver's pods:",
        lines.PODS_OF_NODE,
    ),
    Row(
        "NameKeptByKubelet",
        "The kubelet of {node} refuses the container: {words}",
        "Stop that kubelet, remove its device manager's checkpoint and start it; until then keep pods off the node:",
        Line("kubectl cordon {node}", Role.ADMIN, rights.PATCH_NODE),
    ),
    Row(
        "ImageNotPulled",
        "The image of container {container} cannot be pulled: {words}",
        "Correct the image or its pull secret; the Events have the runtime's message:",
        lines.DESCRIBE_POD,
    ),
    Row(
        "DeviceFileRefused",
        "The user of container {container} may not open its devices: {words}",
        "Give the pod the file's group, such as securityContext.supplementalGroups: [20]; the agent's log has the number:",
        Line(
            "kubectl logs --namespace {system} --selector app.kubernetes.io/component=agent --tail 1000",
            Role.ADMIN,
            Access("get", "pods/log", namespace=rights.OF_THE_RELEASE),
        ),
    ),
    Row(
        "ContainerNotStarted",
        "Container {container} does not run: {words}",
        "Read its output:",
        Line(
            "kubectl logs {pod} --namespace {namespace} --container {container}",
            Role.VIEW,
            rights.in_namespace("get", "pods/log"),
        ),
    ),
    Row(
        "RunsWithoutDevices",
        "Container {container} runs without {resource}{words}.",
        "Delete the pod, so that its controller creates it again:",
        lines.DELETE_POD,
    ),
)
