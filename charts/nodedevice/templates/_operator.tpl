{{/*
on, remove or off, for the values nodeTaint and nodeLabels, by name. An upgrade that switches one off makes `remove` of it, or what stands on
the Nodes would stay there for ever; the upgrade after that finds it removed. Where Helm cannot read the cluster (`helm template`), only the
value counts.
*/}}
{{- define "nodedevice.operator.marks" -}}
{{- $wanted := index .root.Values .name -}}
{{- if and (eq $wanted "off") .root.Release.IsUpgrade -}}
{{- $former := lookup "v1" "ConfigMap" .root.Release.Namespace "nodedevice-operator" | default dict -}}
{{- $settings := dig "data" "operator.yaml" "{}" $former | fromYaml -}}
{{- if eq (toString (get $settings .name)) "true" -}}
{{- $wanted = "remove" -}}
{{- end -}}
{{- end -}}
{{- $wanted -}}
{{- end }}

{{/*
Whether the operator may write to Nodes what is no capacity: `true` or nothing.
*/}}
{{- define "nodedevice.operator.writesMarks" -}}
{{- $marks := list (include "nodedevice.operator.marks" (dict "root" . "name" "nodeTaint")) (include "nodedevice.operator.marks" (dict "root" . "name" "nodeLabels")) -}}
{{- if or (has "on" $marks) (has "remove" $marks) }}true{{ end -}}
{{- end }}

{{/*
Whether the operator may list pods and patch them: `true` or nothing.
*/}}
{{- define "nodedevice.operator.patchesPods" -}}
{{- if and .Values.requiredPlugins.enabled .Values.markWaitingPods }}true{{ end -}}
{{- end }}

{{/*
The operator's settings: what the user gave, and over it what its rights depend on too, so that the two never differ.
*/}}
{{- define "nodedevice.operator.config" -}}
{{- $decided := dict "instance" .Release.Name "observeDra" (ne (include "nodedevice.observesDra" .) "") "requiredPlugins" .Values.requiredPlugins.enabled "requiredPluginNames" .Values.requiredPlugins.names "markWaitingPods" .Values.markWaitingPods "nodeTaint" (eq .Values.nodeTaint "on") "nodeLabels" (eq .Values.nodeLabels "on") -}}
{{- toPrettyJson (mergeOverwrite (deepCopy .Values.operator.config) $decided) -}}
{{- end }}

{{/*
Taints that the operator and the hooks tolerate: those of the values, and the operator's own. Where each node has a broken device nobody else could
remove that.
*/}}
{{- define "nodedevice.operatorTolerations" -}}
{{- with .Values.operator.tolerations -}}
{{ toYaml . }}
{{ end -}}
- {key: nodedevice.io/unhealthy-devices, operator: Exists}
{{- end }}
