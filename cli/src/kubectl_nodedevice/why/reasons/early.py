"""Reasons that stop a pod before a scheduler sees it, by precedence. Pure."""

from typing import Final

from kubectl_nodedevice.why.reasons import lines, rights
from kubectl_nodedevice.why.reasons.rights import Role
from kubectl_nodedevice.why.reasons.row import Line, Row

EARLY: Final = (
    Row(
        "NamespaceTerminating",
        "Namespace {namespace} is being deleted{since}{words}.",
        "Create the pod in another namespace; see what blocks the deletion of this one:",
        Line("kubectl get namespace {namespace} --output yaml", Role.VIEW, rights.in_namespace("get", "namespaces")),
    ),
    # its controller has not created it
    Row(
        "NoReplicas",
        "{controller} does not want this pod: {asked}.",
        "Scale it up, unless an autoscaler sets the number:",
        Line(
            "kubectl {scale_options} --namespace {namespace}",
            Role.EDIT,
            rights.in_namespace("patch", "deployments/scale", "apps"),
        ),
    ),
    Row(
        "JobSuspended",
        "{controller} is suspended{of}.",
        "A queue or its owner may resume it; to resume it by hand:",
        Line(
            "kubectl patch {owner} --namespace {namespace} --patch {resume_patch}",
            Role.EDIT,
            rights.in_namespace("patch", "jobs", "batch"),
        ),
    ),
    Row(
        "JobFailed",
        "{controller} has failed: {words}",
        "Fix the cause, and create the Job again; read its state and Events:",
        Line(
            "kubectl describe {owner} --namespace {namespace}", Role.VIEW, rights.in_namespace("get", "jobs", "batch")
        ),
    ),
    Row(
        "DeploymentPaused",
        "{controller} is paused.",
        "Resume it:",
        Line(
            "kubectl rollout resume {owner} --namespace {namespace}",
            Role.EDIT,
            rights.in_namespace("patch", "deployments", "apps"),
        ),
    ),
    Row(
        "EarlierPodNotReady",
        "{controller} creates the pod after {earlier}, which is not Ready.",
        "Explain why the earlier pod is not Ready:",
        Line("kubectl nodedevice why pod {earlier} --namespace {namespace}", Role.VIEW, rights.OWN_POD),
    ),
    Row(
        "QuotaExceeded",
        "{words}",
        "Delete a pod of the namespace that uses the quota, or raise the quota:",
        Line(
            "kubectl describe resourcequota {quota} --namespace {namespace}",
            Role.VIEW,
            rights.in_namespace("get", "resourcequotas"),
        ),
    ),
    Row(
        "CreationRefused",
        "{words}",
        "The controller's Events have the whole message:",
        Line("kubectl describe {owner} --namespace {namespace}", Role.VIEW, rights.in_namespace("list", "events")),
    ),
    Row(
        "PodFailed",
        "It has failed: {words}",
        "Delete it, so that its controller creates it again:",
        lines.DELETE_POD,
    ),
    Row(
        "PodDeleted",
        "It is being deleted{since}.",
        "See its containers and finalizers:",
        lines.DESCRIBE_POD,
    ),
    # before the scheduler sees the pod
    Row(
        "QueueWaits",
        "Kueue has not admitted it: {workload}{words}.",
        "It starts when Kueue admits it; read its queue and state:",
        Line(
            "kubectl describe {workload_options} --namespace {namespace}",
            Role.ADMIN,
            rights.in_namespace("get", "workloads", "kueue.x-k8s.io"),
        ),
    ),
    Row(
        "SchedulingGated",
        "Scheduling gates keep it from being scheduled: {gates}.",
        "Only the controller that set the gate should remove it; read its Events on the pod:",
        lines.DESCRIBE_POD,
    ),
    Row(
        "ClaimMissing",
        "{claim} does not exist in namespace {namespace}.",
        "Create it, or correct the pod; these exist:",
        Line("kubectl get resourceclaims,resourceclaimtemplates --namespace {namespace}", Role.VIEW, rights.CLAIMS),
    ),
    Row(
        "ClaimNotMade",
        "The claim {claim} has not been created from its template yet{words}.",
        "Read the cause in the pod's Events:",
        lines.DESCRIBE_POD,
    ),
    Row(
        "DeviceClassMissing",
        "{claim} requests the DeviceClass {device_class}, which does not exist{hint}",
        "Install its driver's classes, or correct the claim; these exist:",
        Line("kubectl get deviceclasses", Role.FLEET_VIEW, rights.CLASSES),
    ),
    Row(
        "NothingServes",
        "No node has {resource}{hint}",
        "Correct the name in the pod, or run its device plugin; list the resources:",
        lines.ALL_DEVICES,
    ),
    Row(
        "NothingOffered",
        "No driver has published a device of the DeviceClass {device_class}{hint}",
        "Check that its driver runs; list the published ResourceSlices:",
        Line("kubectl get resourceslices", Role.FLEET_VIEW, rights.SLICES),
    ),
    Row(
        "NoScheduler",
        "No scheduler has tried it for {since}; its schedulerName is {scheduler}.",
        "Start that scheduler, or delete the pod and correct schedulerName; find the scheduler:",
        Line("kubectl get {scheduler_options}", Role.ADMIN, rights.ALL_PODS),
    ),
)
