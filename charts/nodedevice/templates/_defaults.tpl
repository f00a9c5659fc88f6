{{- /* Made from values.yaml by charts/generate_defaults.py. */ -}}
{{- /*
Puts the default in place of each value that is null or not there, and refuses what config_rules.json does not allow. The first
line of every template that reads values: in which order Helm renders them is its own affair.
*/ -}}
{{- define "nodedevice.withDefaults" -}}
{{- range $path, $default := include "nodedevice.defaults" . | fromJson -}}
{{- $steps := splitList "." $path -}}
{{- $at := $.Values -}}
{{- range initial $steps -}}
{{- if not (kindIs "map" (index $at .)) -}}
{{- $_ := set $at . dict -}}
{{- end -}}
{{- $at = get $at . -}}
{{- end -}}
{{- if kindIs "invalid" (index $at (last $steps)) -}}
{{- $_ := set $at (last $steps) $default -}}
{{- end -}}
{{- end -}}
{{- include "nodedevice.check.rules" . -}}
{{- end }}

{{- define "nodedevice.defaults" -}}
{
 "image.registry": "",
 "image.tag": "",
 "image.pullPolicy": "IfNotPresent",
 "image.pullSecrets": [],
 "agents.enabled": true,
 "agents.leaseNamespace": "nodedevice-agents",
 "agents.image.repository": "nodedevice-agent",
 "agents.image.tag": "",
 "agents.image.digest": "",
 "agents.config": {
  "delivery": "auto"
 },
 "agents.observe": true,
 "agents.observeDra": true,
 "agents.observeClaims": true,
 "agents.udev": false,
 "agents.cdi": "auto",
 "agents.allowedHostPaths": [
  "/dev"
 ],
 "agents.httpPort": 9808,
 "agents.resources": {
  "requests": {
   "cpu": "20m",
   "memory": "112Mi"
  },
  "limits": {
   "memory": "384Mi"
  }
 },
 "agents.nodeSelector": {
  "kubernetes.io/os": "linux"
 },
 "agents.pools": [],
 "agents.affinity": {},
 "agents.tolerations": [
  {
   "operator": "Exists"
  }
 ],
 "agents.priorityClassName": "system-node-critical",
 "agents.maxUnavailable": "10%",
 "agents.env": [],
 "agents.podAnnotations": {},
 "agents.podLabels": {},
 "agents.seLinuxOptions": {},
 "agents.runtimeClassName": "",
 "agents.privileged": false,
 "agents.extraVolumes": [],
 "agents.extraVolumeMounts": [],
 "operator.enabled": true,
 "operator.replicas": 2,
 "operator.image.repository": "nodedevice-operator",
 "operator.image.tag": "",
 "operator.image.digest": "",
 "operator.config": {},
 "operator.httpPort": 8080,
 "operator.resources": {
  "requests": {
   "cpu": "50m",
   "memory": "128Mi"
  },
  "limits": {
   "memory": "512Mi"
  }
 },
 "operator.nodeSelector": {
  "kubernetes.io/os": "linux"
 },
 "operator.affinity": {},
 "operator.tolerations": [
  {
   "key": "node-role.kubernetes.io/control-plane",
   "operator": "Exists",
   "effect": "NoSchedule"
  }
 ],
 "operator.priorityClassName": "system-cluster-critical",
 "operator.env": [],
 "operator.podAnnotations": {},
 "operator.podLabels": {},
 "scheduler.enabled": false,
 "scheduler.service": false,
 "scheduler.managedResources": [],
 "scheduler.schedulerName": "nodedevice-scheduler",
 "scheduler.image.repository": "registry.k8s.io/kube-scheduler",
 "scheduler.image.tag": "",
 "scheduler.image.digest": "",
 "scheduler.replicas": 2,
 "scheduler.policy": "binpack",
 "scheduler.filterResponse": "best",
 "scheduler.weight": 10,
 "scheduler.httpTimeout": "5s",
 "scheduler.clientConnection": {
  "qps": 500,
  "burst": 1000
 },
 "scheduler.resources": {
  "requests": {
   "cpu": "100m",
   "memory": "256Mi"
  },
  "limits": {
   "memory": "2Gi"
  }
 },
 "scheduler.extender.config": {},
 "scheduler.extender.httpPort": 8081,
 "scheduler.extender.from": [],
 "scheduler.extender.resources": {
  "requests": {
   "cpu": "50m",
   "memory": "128Mi"
  },
  "limits": {
   "memory": "512Mi"
  }
 },
 "scheduler.tls.certificate": "",
 "scheduler.tls.clientNames": [
  "nodedevice-extender-client"
 ],
 "scheduler.clusterIP": "",
 "scheduler.nodeSelector": {
  "kubernetes.io/os": "linux"
 },
 "scheduler.affinity": {},
 "scheduler.tolerations": [
  {
   "key": "node-role.kubernetes.io/control-plane",
   "operator": "Exists",
   "effect": "NoSchedule"
  }
 ],
 "scheduler.priorityClassName": "system-cluster-critical",
 "scheduler.env": [],
 "scheduler.podAnnotations": {},
 "scheduler.podLabels": {},
 "crds.upgrade": true,
 "crds.allowDowngrade": false,
 "crds.keep": true,
 "cleanup.enabled": true,
 "cleanup.timeoutSeconds": 180,
 "admission.agents": true,
 "admission.operator": true,
 "admission.scheduler": true,
 "admission.configs": true,
 "requiredPlugins.enabled": true,
 "requiredPlugins.names": [
  "*"
 ],
 "markWaitingPods": true,
 "evictions": false,
 "peopleRoles": true,
 "nodeTaint": "off",
 "nodeLabels": "off",
 "metrics.authentication": "none",
 "metrics.certificate": "",
 "networkPolicies.enabled": false,
 "networkPolicies.from": [],
 "monitoring.monitors.enabled": false,
 "monitoring.monitors.interval": "30s",
 "monitoring.monitors.labels": {},
 "monitoring.monitors.authorization": {},
 "monitoring.monitors.tlsConfig": {
  "insecureSkipVerify": true
 },
 "monitoring.rules.enabled": false,
 "monitoring.rules.labels": {},
 "monitoring.rules.disabled": [],
 "monitoring.rules.runbookBase": "",
 "monitoring.dashboards.enabled": false,
 "monitoring.dashboards.namespace": "",
 "monitoring.dashboards.labels": {
  "grafana_dashboard": "1"
 },
 "monitoring.dashboards.annotations": {},
 "monitoring.kubeStateMetrics.enabled": false,
 "monitoring.kubeStateMetrics.serviceAccount.name": "kube-state-metrics",
 "monitoring.kubeStateMetrics.serviceAccount.namespace": ""
}
{{- end }}
