{{/*
The operator's settings: what the user gave, and over it what its rights depend on too, so that the two never differ.
*/}}
{{- define "nodedevice.operator.config" -}}
{{- $decided := dict "requiredPlugins" .Values.requiredPlugins "nodeTaint" (eq .Values.nodeTaint "on") "nodeLabels" (eq .Values.nodeLabels "on") -}}
{{- toYaml (mergeOverwrite (deepCopy .Values.operator.config) $decided) -}}
{{- end }}
