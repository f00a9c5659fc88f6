"""What stops a pod on its node, in the order of precedence. Pure."""

from typing import Final

from kubectl_nodedevice.why.reasons import lines, rights
from kubectl_nodedevice.why.reasons.rights import Access, Role
from kubectl_nodedevice.why.reasons.row import Row

BOUND: Final = (
    Row(
        "WaitsOnNode",
        "Bound to {node}, it waits for {resource}: {words}",
        "The agent tries again by itself; what its node has:",
        "kubectl nodedevice devices --node {node} {resource_options}",
        Role.FLEET_VIEW,
        rights.FLEET,
    ),
    Row(
        "WaitsForGood",
        "Bound to {node}, it will not get {resource}: {words}",
        "Delete it, and have it made again:",
        lines.DELETE,
        Role.EDIT,
        rights.DELETE_POD,
    ),
    Row(
        "RequiredPluginMissing",
        "The runtime of {node} waits for the agent: {words}",
        "See the agent's pod:",
        lines.AGENT_PODS,
        Role.FLEET_VIEW,
        rights.SYSTEM_PODS,
    ),
    Row(
        "ClaimNotPrepared",
        "The driver on {node} could not prepare its devices: {words}",
        "The kubelet tries again within a minute or two; the driver's pods:",
        lines.NODES_PODS,
        Role.ADMIN,
        rights.ALL_PODS,
    ),
    Row(
        "NameKeptByKubelet",
        "The kubelet of {node} refuses the container: {words}",
        "Stop that kubelet, remove its device manager's checkpoint and start it; until then keep pods off the node:",
        "kubectl cordon {node}",
        Role.ADMIN,
        rights.PATCH_NODE,
    ),
    Row(
        "ImageNotPulled",
        "The image of container {container} cannot be pulled: {words}",
        "Correct the image or its pull secret; the Events have the runtime's message:",
        lines.DESCRIBE,
        Role.VIEW,
        rights.OWN_POD,
    ),
    Row(
        "DeviceFileRefused",
        "Container {container} has its devices, and its user may not open them: {words}",
        "Give the pod the file's group, such as securityContext.supplementalGroups: [20]; the agent's log has the number:",
        "kubectl logs --namespace {system} --selector app.kubernetes.io/component=agent --tail 1000",
        Role.ADMIN,
        Access("get", "pods/log", namespace=rights.OF_THE_RELEASE),
    ),
    Row(
        "ContainerNotStarted",
        "Container {container} does not run: {words}",
        "Read its output:",
        "kubectl logs {pod} --namespace {namespace} --container {container}",
        Role.VIEW,
        Access("get", "pods/log", namespace=rights.OF_THE_POD),
    ),
    Row(
        "RunsWithoutDevices",
        "Container {container} runs without {resource}{words}.",
        "Delete the pod, so that its controller creates it again:",
        lines.DELETE,
        Role.EDIT,
        rights.DELETE_POD,
    ),
)
