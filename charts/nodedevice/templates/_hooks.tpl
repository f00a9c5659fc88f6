{{/*
What makes an object a hook: Helm makes it when that happens and takes it away when all went well, so nobody has these rights otherwise.
Call with (dict "on" "pre-upgrade" "weight" 0). What a Job needs has a smaller weight than the Job. With "always" true it goes where it failed,
too.
*/}}
{{- define "nodedevice.hook" -}}
helm.sh/hook: {{ .on }}
helm.sh/hook-weight: {{ .weight | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded{{ if .always }},hook-failed{{ end }}
{{- end }}

{{/*
The pod of a hook: one command of the operator's image, on a node where the operator may run. Not with all of its affinity: what keeps
operators apart would keep hooks from their nodes. Call with (dict "root" $ "name" "nodedevice-crds"
"args" (list ...)); without a name it has no account. With "command" (list ...) that runs in place of the operator. Its containers come last:
more may follow.
*/}}
{{- define "nodedevice.hookPod" -}}
{{- $operator := .root.Values.operator -}}
{{- with .name -}}
serviceAccountName: {{ . }}
{{ end -}}
automountServiceAccountToken: {{ not (empty .name) }}
enableServiceLinks: false
{{- with include "nodedevice.pullSecrets" .root }}
{{- . }}
{{- end }}
priorityClassName: {{ $operator.priorityClassName | quote }}
restartPolicy: Never
{{- with $operator.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
affinity:
  {{- with $operator.affinity.nodeAffinity }}
  nodeAffinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  # A node that runs pods comes first. The scheduler would take the emptiest one, which may be down: it has its taint after a minute only.
  podAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm: {topologyKey: kubernetes.io/hostname, labelSelector: {}, namespaceSelector: {}}
tolerations:
  {{- include "nodedevice.operatorTolerations" .root | nindent 2 }}
  # The API server adds tolerations of a node that is down to a pod that has none, for 5 minutes, which is longer than a hook may take. These match no
  # taint, as its value is empty, and stand in their place: a hook neither goes to such a node nor stays there.
  {{- range list "not-ready" "unreachable" }}
  - {key: node.kubernetes.io/{{ . }}, operator: Equal, value: not-for-hooks, effect: NoExecute}
  {{- end }}
securityContext:
  runAsNonRoot: true
  seccompProfile:
    type: RuntimeDefault
containers:
  {{- include "nodedevice.hookContainer" (dict "root" .root "name" "nodedevice-operator" "image" $operator.image "env" $operator.env "command" .command "args" .args) | nindent 2 }}
{{- end }}

{{/*
A container of such a pod. Call with (dict "root" $ "name" "nodedevice-operator" "image" .Values.operator.image "env" (list ...) "args" (list ...)), or
with "command".
*/}}
{{- define "nodedevice.hookContainer" -}}
- name: {{ .name }}
  image: {{ include "nodedevice.image" (dict "root" .root "image" .image) | quote }}
  imagePullPolicy: {{ .root.Values.image.pullPolicy }}
  {{- with .command }}
  command: {{ toJson . }}
  {{- end }}
  {{- with .args }}
  args: {{ toJson . }}
  {{- end }}
  {{- with .env }}
  env:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  resources:
    requests: {cpu: 20m, memory: 96Mi}
    limits: {memory: 384Mi}
  securityContext:
    {{- include "nodedevice.restricted" .root | nindent 4 }}
  terminationMessagePolicy: FallbackToLogsOnError
{{- end }}

{{/*
An account for a hook. Call with (dict "root" $ "name" "nodedevice-crds" "on" "pre-upgrade" "component" "crds").
*/}}
{{- define "nodedevice.hookAccount" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace | quote }}
  labels:
    {{- include "nodedevice.labels" . | nindent 4 }}
  annotations:
    {{- include "nodedevice.hook" (dict "on" .on "weight" -10) | nindent 4 }}
automountServiceAccountToken: false
{{- end }}

{{/*
Binds that account to the role of its name: in a namespace where one is given, else in the cluster.
*/}}
{{- define "nodedevice.hookBinding" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ if .namespace }}RoleBinding{{ else }}ClusterRoleBinding{{ end }}
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . | quote }}
  {{- end }}
  labels:
    {{- include "nodedevice.labels" . | nindent 4 }}
  annotations:
    {{- include "nodedevice.hook" (dict "on" .on "weight" -10) | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ if .namespace }}Role{{ else }}ClusterRole{{ end }}
  name: {{ .name }}
subjects:
  - kind: ServiceAccount
    name: {{ .name }}
    namespace: {{ .root.Release.Namespace | quote }}
{{- end }}

{{/*
The metadata of such a role.
*/}}
{{- define "nodedevice.hookRoleMetadata" -}}
name: {{ .name }}
{{- with .namespace }}
namespace: {{ . | quote }}
{{- end }}
labels:
  {{- include "nodedevice.labels" . | nindent 2 }}
annotations:
  {{- include "nodedevice.hook" (dict "on" .on "weight" -10) | nindent 2 }}
{{- end }}
