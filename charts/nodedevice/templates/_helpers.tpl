{{/*
Recommended labels. Call with (dict "root" $ "component" "agent"); no component for what both share.
*/}}
{{- define "nodedevice.labels" -}}
app.kubernetes.io/name: nodedevice
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/part-of: nodedevice
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
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
