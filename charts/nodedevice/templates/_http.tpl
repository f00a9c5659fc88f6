{{/* Parts of both pods, by the values under `metrics`: how the HTTP ports are served. */}}

{{/* The Secret with the certificate; nothing for plain HTTP. */}}
{{- define "nodedevice.http.certificate" -}}
{{- with .Values.metrics }}{{ .certificate | default (ternary "nodedevice-http" "" (eq .authentication "token")) }}{{ end }}
{{- end }}

{{- define "nodedevice.http.scheme" -}}
{{ ternary "HTTPS" "HTTP" (ne (include "nodedevice.http.certificate" .) "") }}
{{- end }}

{{- define "nodedevice.http.env" -}}
{{- if include "nodedevice.http.certificate" . }}
- name: NODEDEVICE_METRICS_AUTHENTICATION
  value: {{ .Values.metrics.authentication }}
- name: NODEDEVICE_TLS_CERTIFICATE
  value: /etc/nodedevice-tls/tls.crt
- name: NODEDEVICE_TLS_KEY
  value: /etc/nodedevice-tls/tls.key
{{- end }}
{{- end }}

{{- define "nodedevice.http.mount" -}}
{{- if include "nodedevice.http.certificate" . }}
- name: tls
  mountPath: /etc/nodedevice-tls
  readOnly: true
{{- end }}
{{- end }}

{{- define "nodedevice.http.volume" -}}
{{- with include "nodedevice.http.certificate" . }}
- name: tls
  secret:
    secretName: {{ . | quote }}
    {{- /* the operator is not root, and its group is its own */}}
    defaultMode: 0444
{{- end }}
{{- end }}

{{- define "nodedevice.http.monitor" -}}
{{- if include "nodedevice.http.certificate" . }}
scheme: https
tlsConfig:
  {{- toYaml .Values.monitoring.monitors.tlsConfig | nindent 2 }}
{{- with .Values.monitoring.monitors.authorization }}
authorization:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}

{{/* The role's rule for programs that validate tokens with the API server. */}}
{{- define "nodedevice.http.rules" -}}
{{- if eq .Values.metrics.authentication "token" }}
- apiGroups: [authentication.k8s.io]
  resources: [tokenreviews]
  verbs:
    - create # whose token asks for /metrics
- apiGroups: [authorization.k8s.io]
  resources: [subjectaccessreviews]
  verbs:
    - create # whether that account may read /metrics
{{- end }}
{{- end }}
