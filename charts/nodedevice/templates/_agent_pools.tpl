{{/*
Pools of nodes (agents.pools): a DaemonSet each. They are ordered: a node is of the first one that selects it, and each later one's
affinity leaves out its nodes.
*/}}
{{- define "nodedevice.agent.daemonSetName" -}}
nodedevice-agent{{ with . }}-{{ . }}{{ end }}
{{- end }}

{{- /* Names of all of them, as a JSON list. */ -}}
{{- define "nodedevice.agent.daemonSets" -}}
{{- $names := list -}}
{{- range .Values.agents.pools -}}
{{- $names = append $names (include "nodedevice.agent.daemonSetName" .name) -}}
{{- end -}}
{{- append $names (include "nodedevice.agent.daemonSetName" "") | toJson -}}
{{- end }}

{{- /*
Affinity, as JSON: that of agents.affinity, and neither a node of the pools before nor one that runs no DaemonSet: EKS makes a Node of each
Fargate pod, and a virtual kubelet one of a cloud. An agent's pod would stay Pending there.
*/ -}}
{{- define "nodedevice.agent.affinity" -}}
{{- $affinity := deepCopy (.agents.affinity | default dict) -}}
{{- $machines := list -}}
{{- range $key, $value := dict "eks.amazonaws.com/compute-type" "fargate" "type" "virtual-kubelet" "liqo.io/type" "virtual-node" -}}
{{- $machines = append $machines (dict "key" $key "operator" "NotIn" "values" (list $value)) -}}
{{- end -}}
{{- $node := $affinity.nodeAffinity | default dict -}}
{{- $required := $node.requiredDuringSchedulingIgnoredDuringExecution | default dict -}}
{{- $others := include "nodedevice.agent.others" .before | fromJsonArray -}}
{{- $terms := list -}}
{{- range $term := $required.nodeSelectorTerms | default (list dict) -}}
{{- range $others -}}
{{- $expressions := concat ($term.matchExpressions | default list) $machines . -}}
{{- $terms = append $terms (merge (dict "matchExpressions" $expressions) $term) -}}
{{- end -}}
{{- end -}}
{{- if gt (len $terms) 64 -}}
{{- fail (printf "agents.pools: to leave out all nodes of %d pools takes %d terms of node affinity; 64 are allowed: select pools by fewer labels" (len .before) (len $terms)) -}}
{{- end -}}
{{- $_ := set $required "nodeSelectorTerms" $terms -}}
{{- $_ := set $node "requiredDuringSchedulingIgnoredDuringExecution" $required -}}
{{- $_ := set $affinity "nodeAffinity" $node -}}
{{- toJson $affinity -}}
{{- end }}

{{- /*
Nodes that none of these selectors selects, as a JSON list of lists of expressions: any of the lists, all of its expressions. A node is not
selected by a=1,b=2 if its a is not 1 or its b is not 2.
*/ -}}
{{- define "nodedevice.agent.others" -}}
{{- $terms := list list -}}
{{- range $selector := . -}}
{{- $next := list -}}
{{- range $term := $terms -}}
{{- range $key, $value := $selector -}}
{{- $next = append $next (append $term (dict "key" $key "operator" "NotIn" "values" (list $value))) -}}
{{- end -}}
{{- end -}}
{{- $terms = $next -}}
{{- end -}}
{{- toJson $terms -}}
{{- end }}
