{{/*
Recommended labels. Call with (dict "root" $ "component" "agent"); no component for what both share.
*/}}
{{- define "nodedevice.labels" -}}
app.kubernetes.io/name: nodedevice
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/part-of: nodedevice
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{/*
What a workload finds its pods by. It can never be changed once installed: no version, nothing that a value sets.
*/}}
{{- define "nodedevice.selectorLabels" -}}
app.kubernetes.io/name: nodedevice
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/*
The agents' Leases have a namespace to themselves; say so before anything is installed.
*/}}
{{- define "nodedevice.leaseNamespace" -}}
{{- if eq .Values.agents.leaseNamespace .Release.Namespace -}}
{{- fail (printf "agents.leaseNamespace is %s, the namespace of the release itself: agents may write every Lease in it; choose another, such as nodedevice-agents" .Values.agents.leaseNamespace) -}}
{{- end -}}
{{ .Values.agents.leaseNamespace }}
{{- end }}

{{/*
An image by digest, else by tag. Call with (dict "root" $ "image" .Values.agents.image).
*/}}
{{- define "nodedevice.image" -}}
{{- $repository := .image.repository -}}
{{- with .root.Values.image.registry }}{{ $repository = printf "%s/%s" (trimSuffix "/" .) $repository }}{{ end -}}
{{- if .image.digest -}}
{{ printf "%s@%s" $repository .image.digest }}
{{- else -}}
{{ printf "%s:%s" $repository (.image.tag | default .root.Values.image.tag | default .root.Chart.AppVersion) }}
{{- end -}}
{{- end }}

{{- define "nodedevice.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
{{- end }}

{{/*
For every container but the agent's: no root, nothing to write on, no capability, the runtime's own seccomp profile.
*/}}
{{- define "nodedevice.restricted" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{/*
Affinity of pods of a Deployment: `affinity` where it is given, else spread over nodes, then zones, as far as possible: a cluster of one node has
them side by side rather than one that cannot be placed. Not by topologySpreadConstraints: the scheduler ignores soft ones on Nodes that lack one
of their labels, so that where no Node has a zone, nothing would be spread.
*/}}
{{- define "nodedevice.affinity" -}}
{{- if .affinity -}}
{{- toYaml .affinity }}
{{- else -}}
podAntiAffinity:
  preferredDuringSchedulingIgnoredDuringExecution:
    {{- range $key, $weight := dict "kubernetes.io/hostname" 100 "topology.kubernetes.io/zone" 50 }}
    - weight: {{ $weight }}
      podAffinityTerm:
        topologyKey: {{ $key }}
        matchLabelKeys: [pod-template-hash]
        labelSelector:
          matchLabels:
            {{- $.selector | nindent 12 }}
    {{- end }}
{{- end -}}
{{- end }}
