{{/* The two containers of the scheduler's pod. */}}

{{- define "nodedevice.extender.container" -}}
{{- $extender := .Values.scheduler.extender -}}
- name: extender
  image: {{ include "nodedevice.image" (dict "root" . "image" .Values.operator.image) | quote }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  args: [extender]
  env:
    - name: NODEDEVICE_CONFIG
      value: /etc/nodedevice/extender.yaml
    {{- with .Values.scheduler.env }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  ports:
    - name: http
      containerPort: {{ $extender.httpPort }}
    {{- if .Values.scheduler.service }}
    - name: extender
      containerPort: 8888
    {{- end }}
  # everything starts at once when a node boots: the kubelet must not kill a program that is still starting
  startupProbe:
    httpGet: {path: /healthz, port: http, scheme: {{ include "nodedevice.http.scheme" . }}}
    periodSeconds: 1
    timeoutSeconds: 5
    failureThreshold: 300
  # the event loop turns
  livenessProbe:
    httpGet: {path: /healthz, port: http, scheme: {{ include "nodedevice.http.scheme" . }}}
    periodSeconds: 10
    timeoutSeconds: 5
    # a minute: on a machine that has too much to do, a restart would only add to it
    failureThreshold: 6
  # everything was listed{{ if .Values.scheduler.service }}, and it is the active one: the Service leads to no other{{ end }}
  readinessProbe:
    httpGet: {path: /readyz, port: http, scheme: {{ include "nodedevice.http.scheme" . }}}
    periodSeconds: 1
    timeoutSeconds: 5
  resources:
    {{- toYaml $extender.resources | nindent 4 }}
  securityContext:
    {{- include "nodedevice.restricted" . | nindent 4 }}
  terminationMessagePolicy: FallbackToLogsOnError
  volumeMounts:
    - name: config
      mountPath: /etc/nodedevice
      readOnly: true
    {{- if .Values.scheduler.service }}
    - name: extender-tls
      mountPath: /etc/nodedevice-extender
      readOnly: true
    {{- end }}
    {{- include "nodedevice.http.mount" . | nindent 4 }}
{{- end }}

{{- define "nodedevice.scheduler.container" -}}
- name: kube-scheduler
  image: {{ include "nodedevice.scheduler.image" . | quote }}
  {{- /* Never applies to preloaded nodedevice images; this image comes from Kubernetes */}}
  imagePullPolicy: {{ ternary "IfNotPresent" .Values.image.pullPolicy (eq .Values.image.pullPolicy "Never") }}
  command: [kube-scheduler]
  args:
    - --config=/etc/nodedevice/scheduler.yaml
    # the scheduler does not watch NodeDevices: without other events it would retry a pod only after 5 minutes
    - --pod-max-in-unschedulable-pods-duration=10s
  ports:
    - name: scheduler
      containerPort: 10259
  startupProbe:
    httpGet: {path: /livez, port: scheduler, scheme: HTTPS}
    periodSeconds: 1
    timeoutSeconds: 5
    failureThreshold: 300
  livenessProbe:
    httpGet: {path: /livez, port: scheduler, scheme: HTTPS}
    periodSeconds: 10
    timeoutSeconds: 5
    failureThreshold: 6
  # also of one that stands by
  readinessProbe:
    httpGet: {path: /readyz, port: scheduler, scheme: HTTPS}
    periodSeconds: 2
    timeoutSeconds: 5
  resources:
    {{- toYaml .Values.scheduler.resources | nindent 4 }}
  securityContext:
    {{- include "nodedevice.restricted" . | nindent 4 }}
  terminationMessagePolicy: FallbackToLogsOnError
  volumeMounts:
    - name: config
      mountPath: /etc/nodedevice
      readOnly: true
{{- end }}
