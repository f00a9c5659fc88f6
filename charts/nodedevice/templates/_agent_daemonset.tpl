{{/*
The DaemonSet of the agents of one pool, or of all nodes that no pool has. root: the chart's context. agents: .Values.agents with what the
pool sets. pool: its name, empty for the rest. before: node selectors of the pools that come first. hostPaths: what is mounted.
*/}}
{{- define "nodedevice.agent.daemonSet" -}}
{{- $agents := .agents }}
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: {{ include "nodedevice.agent.daemonSetName" .pool | quote }}
  namespace: {{ .root.Release.Namespace | quote }}
  labels:
    {{- include "nodedevice.labels" (dict "root" .root "component" "agent") | nindent 4 }}
spec:
  selector:
    # The selector of the DaemonSet without a pool cannot change and also matches pods of pools. A controller ignores pods of other owners.
    matchLabels:
      {{- include "nodedevice.selectorLabels" (dict "root" .root "component" "agent") | nindent 6 }}
      {{- with .pool }}
      nodedevice.io/pool: {{ . | quote }}
      {{- end }}
  updateStrategy:
    type: RollingUpdate
    rollingUpdate:
      maxUnavailable: {{ $agents.maxUnavailable }}
      maxSurge: 0 # two agents of one node would only wait for each other's directory
  template:
    metadata:
      # nothing of the chart's version: an upgrade that changes nothing for the program replaces no pod
      labels:
        {{- include "nodedevice.selectorLabels" (dict "root" .root "component" "agent") | nindent 8 }}
        {{- with .pool }}
        nodedevice.io/pool: {{ . | quote }}
        {{- end }}
        {{- with $agents.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      annotations:
        kubectl.kubernetes.io/default-container: agent
        checksum/config: {{ include "nodedevice.agent.settings" .root | sha256sum | quote }}
        {{- with $agents.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      serviceAccountName: nodedevice-agent
      # its token is bound to this pod, and so to its node: the policy nodedevice-agent relies on that
      automountServiceAccountToken: true
      # variables of a Service called nodedevice would be taken for settings
      enableServiceLinks: false
      {{- with include "nodedevice.pullSecrets" .root }}
      {{- trim . | nindent 6 }}
      {{- end }}
      priorityClassName: {{ $agents.priorityClassName | quote }}
      {{- with $agents.runtimeClassName }}
      runtimeClassName: {{ . | quote }}
      {{- end }}
      terminationGracePeriodSeconds: 20
      {{- with $agents.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with include "nodedevice.agent.affinity" . | fromJson }}
      affinity:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $agents.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      containers:
        - name: agent
          image: {{ include "nodedevice.image" (dict "root" .root "image" $agents.image) | quote }}
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          args: [run]
          env:
            - name: NODEDEVICE_NODE_NAME
              valueFrom:
                fieldRef:
                  apiVersion: v1
                  fieldPath: spec.nodeName
            - name: NODEDEVICE_CONFIG
              value: /etc/nodedevice/agent.yaml
            - name: NODEDEVICE_LEASES_NAMESPACE
              value: {{ include "nodedevice.leaseNamespace" .root | quote }}
            - name: NODEDEVICE_NAMESPACE
              value: {{ .root.Release.Namespace | quote }}
            - name: NODEDEVICE_HTTP_ADDRESS
              value: ":{{ $agents.httpPort }}"
            {{- include "nodedevice.http.env" .root | nindent 12 }}
            {{- with $agents.env }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          ports:
            - name: http
              containerPort: {{ $agents.httpPort }}
          # everything starts at once when a node boots: the kubelet must not kill a program that is still starting
          startupProbe:
            httpGet: {path: /healthz, port: http, scheme: {{ include "nodedevice.http.scheme" .root }}}
            periodSeconds: 1
            timeoutSeconds: 5
            failureThreshold: 300
          # checks that the event loop runs, and not the API server: a restart does not make it available
          livenessProbe:
            httpGet: {path: /healthz, port: http, scheme: {{ include "nodedevice.http.scheme" .root }}}
            periodSeconds: 10
            timeoutSeconds: 5
            # a minute: a restart would only add load to an overloaded machine
            failureThreshold: 6
          # plugins can register and the API server was reached; the response names missing conditions
          readinessProbe:
            httpGet: {path: /readyz, port: http, scheme: {{ include "nodedevice.http.scheme" .root }}}
            periodSeconds: 2
            timeoutSeconds: 5
          resources:
            {{- toYaml $agents.resources | nindent 12 }}
          # root, because only root can access sockets and files of the host's kubelet, runtime and plugins. No capability: the agent opens
          # no device, enters no namespace and changes no other user's files.
          securityContext:
            runAsUser: 0
            runAsNonRoot: false
            readOnlyRootFilesystem: true
            {{- if $agents.privileged }}
            privileged: true
            {{- else }}
            privileged: false
            allowPrivilegeEscalation: false
            capabilities:
              drop: [ALL]
            seccompProfile:
              type: RuntimeDefault
            {{- end }}
            {{- with $agents.seLinuxOptions }}
            seLinuxOptions:
              {{- toYaml . | nindent 14 }}
            {{- end }}
          # not in /dev, which is the host's here
          terminationMessagePath: /termination-log
          terminationMessagePolicy: FallbackToLogsOnError
          volumeMounts:
            - name: config
              mountPath: /etc/nodedevice
              readOnly: true
            {{- include "nodedevice.http.mount" .root | nindent 12 }}
            {{- range .hostPaths }}
            - name: {{ .name }}
              mountPath: {{ .path | quote }}
              {{- if .readOnly }}
              readOnly: true
              {{- end }}
            {{- end }}
            {{- with $agents.extraVolumeMounts }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
      volumes:
        - name: config
          configMap:
            name: nodedevice-agent
        {{- include "nodedevice.http.volume" .root | nindent 8 }}
        {{- range .hostPaths }}
        - name: {{ .name }}
          hostPath:
            path: {{ .path | quote }}
            type: {{ .type }}
        {{- end }}
        {{- with $agents.extraVolumes }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
{{- end }}
