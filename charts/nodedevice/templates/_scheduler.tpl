{{/*
Which of the two there is: `scheduler` (a second scheduler with the extender beside it), `extender` (the extender alone), or nothing. Also the
name of its Deployment and account, behind `nodedevice-`.
*/}}
{{- define "nodedevice.scheduler.component" -}}
{{- $scheduler := .Values.scheduler -}}
{{- if and $scheduler.enabled $scheduler.service -}}
{{- fail "scheduler.enabled and scheduler.service are both true: the first installs a second scheduler with the extender beside it, the other the extender alone, for the cluster's own scheduler; set one of them to false" -}}
{{- end -}}
{{- if or $scheduler.enabled $scheduler.service -}}
{{- if not $scheduler.managedResources -}}
{{- fail "scheduler.managedResources is empty: name the resources with parts that the extender is asked about, such as [aliyun.com/gpu-mem]" -}}
{{- end -}}
{{- range $scheduler.managedResources -}}
{{- include "nodedevice.check.resourceName" (dict "at" "scheduler.managedResources:" "name" .) -}}
{{- end -}}
{{- if and $scheduler.enabled (eq $scheduler.schedulerName "default-scheduler") -}}
{{- fail "scheduler.schedulerName is default-scheduler, which is the cluster's own: two schedulers would bind the same pods; choose another, such as nodedevice-scheduler, or set scheduler.service instead of scheduler.enabled" -}}
{{- end -}}
{{- $port := int $scheduler.extender.httpPort -}}
{{- if eq $port 8888 -}}
{{- fail "scheduler.extender.httpPort is 8888, where the extender answers kube-scheduler: choose another, such as 8081" -}}
{{- end -}}
{{- if and $scheduler.enabled (eq $port 10259) -}}
{{- fail "scheduler.extender.httpPort is 10259, the port of kube-scheduler in the same pod: choose another, such as 8081" -}}
{{- end -}}
{{- include "nodedevice.check.cidrs" (dict "at" "scheduler.extender.from" "cidrs" $scheduler.extender.from) -}}
{{- if and $scheduler.service $scheduler.extender.from (not .Values.networkPolicies.enabled) -}}
{{- fail "scheduler.extender.from restricts nothing without a NetworkPolicy: set networkPolicies.enabled, or leave it out" -}}
{{- end -}}
{{- ternary "scheduler" "extender" $scheduler.enabled -}}
{{- end -}}
{{- end }}

{{/*
The second scheduler's image. The default tag is the release of Kubernetes that the cluster says it is, without what a vendor adds: v1.34.4
of v1.34.4-gke.1 and of v1.34.4+k3s1.
*/}}
{{- define "nodedevice.scheduler.image" -}}
{{- $image := .Values.scheduler.image -}}
{{- if $image.digest -}}
{{ printf "%s@%s" $image.repository $image.digest }}
{{- else -}}
{{ printf "%s:%s" $image.repository ($image.tag | default (regexFind "^v[0-9]+\\.[0-9]+\\.[0-9]+(-(alpha|beta|rc)\\.[0-9]+)?" .Capabilities.KubeVersion.Version)) }}
{{- end -}}
{{- end }}

{{/*
What the scheduler's configuration says of the extender. Call with (dict "root" $ "address" "https://10.96.0.10"). https: with a client
certificate, from files of the scheduler's own host.
*/}}
{{- define "nodedevice.scheduler.extenders" -}}
{{- $scheduler := .root.Values.scheduler -}}
extenders:
  - urlPrefix: {{ .address }}
    filterVerb: filter
    prioritizeVerb: prioritize
    bindVerb: bind
    preemptVerb: preempt
    weight: {{ $scheduler.weight }}
    {{- if hasPrefix "https:" .address }}
    enableHTTPS: true
    tlsConfig:
      serverName: {{ include "nodedevice.extender.host" .root }}
      caFile: /etc/kubernetes/nodedevice-extender/ca.crt
      certFile: /etc/kubernetes/nodedevice-extender/tls.crt
      keyFile: /etc/kubernetes/nodedevice-extender/tls.key
    {{- end }}
    httpTimeout: {{ $scheduler.httpTimeout }}
    # node names instead of whole Nodes
    nodeCacheCapable: true
    # without a response the pod waits
    ignorable: false
    managedResources:
      {{- range $scheduler.managedResources }}
      - name: {{ . | quote }}
        # the scheduler also counts the sum of each node
        ignoredByScheduler: false
      {{- end }}
{{- end }}

{{/*
The second scheduler's own configuration.
*/}}
{{- define "nodedevice.scheduler.config" -}}
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection:
  {{- toYaml .Values.scheduler.clientConnection | nindent 2 }}
leaderElection:
  leaderElect: true
  resourceLock: leases
  resourceName: nodedevice-scheduler
  resourceNamespace: {{ .Release.Namespace | quote }}
# with the default, a scheduler of 5,000 nodes hands over at most 500 of them
percentageOfNodesToScore: 100
profiles:
  - schedulerName: {{ .Values.scheduler.schedulerName | quote }}
{{ include "nodedevice.scheduler.extenders" (dict "root" . "address" "http://127.0.0.1:8888") }}
{{- end }}

{{- define "nodedevice.extender.host" -}}
nodedevice-extender.{{ .Release.Namespace }}.svc
{{- end }}

{{/*
The Secret with the certificate of the extender's Service.
*/}}
{{- define "nodedevice.extender.certificate" -}}
{{- .Values.scheduler.tls.certificate | default "nodedevice-extender" -}}
{{- end }}

{{/*
The extender's settings: what the user gave, and over it what belongs to the rest of the chart.
*/}}
{{- define "nodedevice.extender.config" -}}
{{- $scheduler := .Values.scheduler -}}
{{- $decided := dict "namespace" .Release.Namespace "instance" .Release.Name "policy" $scheduler.policy "filterResponse" $scheduler.filterResponse "httpAddress" (printf ":%v" $scheduler.extender.httpPort) -}}
{{- if $scheduler.enabled -}}
{{- /* the active extender is in the pod of the active scheduler */ -}}
{{- $decided = merge $decided (dict "address" "127.0.0.1:8888" "followLease" (printf "%s/nodedevice-scheduler" .Release.Namespace)) -}}
{{- else -}}
{{- $files := "/etc/nodedevice-extender" -}}
{{- $decided = merge $decided (dict "address" ":8888" "clientNames" $scheduler.tls.clientNames) -}}
{{- $decided = merge $decided (dict "tlsCertificate" (printf "%s/tls.crt" $files) "tlsKey" (printf "%s/tls.key" $files) "clientCa" (printf "%s/ca.crt" $files)) -}}
{{- end -}}
{{- if include "nodedevice.http.certificate" . -}}
{{- $decided = merge $decided (dict "metricsAuthentication" .Values.metrics.authentication "metricsTlsCertificate" "/etc/nodedevice-tls/tls.crt" "metricsTlsKey" "/etc/nodedevice-tls/tls.key") -}}
{{- end -}}
{{- toPrettyJson (mergeOverwrite (deepCopy $scheduler.extender.config) $decided) -}}
{{- end }}

{{/*
How the cluster's own scheduler comes to ask the extender. It runs on its host's network and often knows no Service by name, so the address is
the Service's; before the Service is there, a place for it.
*/}}
{{- define "nodedevice.notes.service" -}}
{{- $namespace := .Release.Namespace -}}
{{- $service := lookup "v1" "Service" $namespace "nodedevice-extender" | default dict -}}
{{- $ip := .Values.scheduler.clusterIP | default (dig "spec" "clusterIP" "CLUSTER-IP" $service) }}

The extender runs for the cluster's own scheduler (scheduler.service). On each host of that scheduler, as root, write the files of its certificate:
{{ if .Values.scheduler.tls.certificate }}
  /etc/kubernetes/nodedevice-extender/ca.crt: what signed the certificate in the Secret {{ .Values.scheduler.tls.certificate }}
  /etc/kubernetes/nodedevice-extender/tls.crt, tls.key: a client's certificate of that Secret's ca.crt, with a name of scheduler.tls.clientNames
{{- else }}
  umask 077
  mkdir -p /etc/kubernetes/nodedevice-extender
  for file in ca.crt tls.crt tls.key; do kubectl get secret nodedevice-extender-client --namespace {{ $namespace }} \
    --output "go-template={{ "{{" }}index .data \"$file\" | base64decode{{ "}}" }}" > /etc/kubernetes/nodedevice-extender/$file; done
{{- end }}
{{- if eq $ip "CLUSTER-IP" }}

In place of CLUSTER-IP below, write the address of the Service:

  kubectl get service nodedevice-extender --namespace {{ $namespace }} --output jsonpath={.spec.clusterIP}
{{- end }}

Then start that scheduler with --config and this file, and with --pod-max-in-unschedulable-pods-duration=10s: it does not watch NodeDevices, and tries a
pod that found no device again by itself, after five minutes by default (of kubeadm: /etc/kubernetes/manifests/kube-scheduler.yaml, which has to mount the file and the
directory above). What you have set there already belongs into the same file.

# KubeSchedulerConfiguration
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection:
  kubeconfig: /etc/kubernetes/scheduler.conf
  {{- toYaml .Values.scheduler.clientConnection | nindent 2 }}
leaderElection:
  leaderElect: true
# with the default, a scheduler of 5,000 nodes hands over at most 500 of them
percentageOfNodesToScore: 100
{{ include "nodedevice.scheduler.extenders" (dict "root" . "address" (printf "https://%s" (ternary (printf "[%s]" $ip) $ip (contains ":" $ip)))) }}
# end of KubeSchedulerConfiguration
{{- end }}
