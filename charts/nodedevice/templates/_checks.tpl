{{/*
What values.schema.json cannot refuse in words that help. Each is something that the API server or every agent would refuse later, or
that would hide from the agent what it needs itself. Nothing is rendered here.
*/}}

{{/*
Paths of the host in the agent's container. Call with (dict "config" .Values.agents.config "hostPaths" ... "extra" .Values.agents.extraVolumeMounts).
*/}}
{{- define "nodedevice.check.hostPaths" -}}
{{- range $setting := list "stateDir" "pluginDir" "kubeletDir" "nriSocket" "podResourcesSocket" "pluginsRegistryDir" "runtimeConfig" -}}
{{- with get $.config $setting -}}
{{- if or (regexMatch "[:[:cntrl:]]" .) (has ".." (splitList "/" .)) -}}
{{- fail (printf "agents.config.%s is %q: a path that is mounted into a container has no colon, no control character and no .. in it" $setting .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- /* what the agent's image has, and what every container gets */ -}}
{{- $needed := list "/bin" "/dev" "/etc/nodedevice" "/lib" "/lib64" "/opt/nodedevice" "/proc" "/run/secrets" "/sbin" "/sys" "/usr" "/var/run/secrets" -}}
{{- $seen := dict "/etc/nodedevice" "the agent's settings" -}}
{{- range $each := .hostPaths -}}
{{- $what := "the agent itself" -}}
{{- with $each.setting -}}
{{- $what = printf "agents.config.%s" . -}}
{{- range $own := $needed -}}
{{- $path := printf "%s/" (trimSuffix "/" $each.path) -}}
{{- if or (hasPrefix $path (printf "%s/" $own)) (hasPrefix (printf "%s/" $own) $path) -}}
{{- fail (printf "%s has the host's directory %s mounted into the agent's container, which needs its own %s: choose a directory that is for this alone, such as one in /var/lib or /data" $what $each.path $own) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with get $seen $each.path -}}
{{- fail (printf "%s and %s both have %s mounted from the host: give one of them another directory%s" . $what $each.path (ternary "; the kubelet's own is no place for pluginDir, device plugins get pluginDir as the hostPath instead" "" (eq $each.name "kubelet-plugins"))) -}}
{{- end -}}
{{- $_ := set $seen $each.path $what -}}
{{- end -}}
{{- range $extra := .extra -}}
{{- with get $seen (clean $extra.mountPath) -}}
{{- fail (printf "agents.extraVolumeMounts: something is mounted at %s already, by %s: choose another mountPath" $extra.mountPath .) -}}
{{- end -}}
{{- $_ := set $seen (clean $extra.mountPath) "agents.extraVolumeMounts" -}}
{{- end -}}
{{- with .config.pluginsRegistryDir -}}
{{- $plugins := $.config.pluginDir | default "/var/lib/nodedevice/device-plugins" | clean -}}
{{- if hasPrefix (printf "%s/" (clean .)) (printf "%s/" $plugins) -}}
{{- fail (printf "agents.config.pluginsRegistryDir is %s, which contains pluginDir %s, whose sockets announce nothing: give the registry a directory of its own" . $plugins) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/*
An extended resource's name. Call with (dict "at" "what names it" "name" "vendor.com/gpu").
*/}}
{{- define "nodedevice.check.resourceName" -}}
{{- if contains "kubernetes.io/" .name -}}
{{- fail (printf "%s %s: names in kubernetes.io are reserved by Kubernetes; use a domain of your own, such as vendor.com/gpu" .at .name) -}}
{{- end -}}
{{- if hasPrefix "requests." .name -}}
{{- fail (printf "%s %s: a name that begins with requests. is read by Kubernetes as a quota; use another domain" .at .name) -}}
{{- end -}}
{{- end }}

{{/*
Ranges of addresses. Call with (dict "at" "scheduler.extender.from" "cidrs" ...).
*/}}
{{- define "nodedevice.check.cidrs" -}}
{{- $octet := "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])" -}}
{{- $v4 := printf "(%s[.]){3}%s/(3[0-2]|[12]?[0-9])" $octet $octet -}}
{{- $word := "[0-9a-fA-F]{1,4}" -}}
{{- $v6 := list (printf "(%s:){7}%s" $word $word) (printf "(%s:){1,7}:" $word) (printf ":(:%s){1,7}" $word) "::" -}}
{{- range $before := untilStep 1 7 1 -}}
{{- $v6 = append $v6 (printf "(%s:){%d}(:%s){1,%d}" $word $before $word (sub 7 $before)) -}}
{{- end -}}
{{- $pattern := printf "^(%s|(%s)/(12[0-8]|1[01][0-9]|[1-9]?[0-9]))$" $v4 (join "|" $v6) -}}
{{- range .cidrs -}}
{{- if not (regexMatch $pattern .) -}}
{{- fail (printf "%s: %q is not a CIDR: write an address and the length of its prefix, such as 10.0.0.5/32 or fd00::/64" $.at .) -}}
{{- end -}}
{{- end -}}
{{- end }}
