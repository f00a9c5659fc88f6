{{/*
What values.schema.json cannot refuse, of what goes into pods as it stands: the API server would refuse it later, with half a release
installed, or the program would not start with it. Nothing is rendered here.
*/}}

{{/*
Environment variables. Call with (dict "at" "agents" "env" .Values.agents.env), and "config" where the settings are not in agents.config.
*/}}
{{- define "nodedevice.check.env" -}}
{{- $seen := list -}}
{{- range $each := .env -}}
{{- if hasPrefix "NODEDEVICE_" $each.name -}}
{{- $setting := trimPrefix "NODEDEVICE_" $each.name | lower | camelcase | untitle -}}
{{- fail (printf "%s.env: %s is a setting of the program: set %s.%s instead; what is not known there is for the chart to decide" $.at $each.name ($.config | default (printf "%s.config" $.at)) $setting) -}}
{{- end -}}
{{- if has $each.name $seen -}}
{{- fail (printf "%s.env: %s is there twice: keep one" $.at $each.name) -}}
{{- end -}}
{{- if and $each.value $each.valueFrom -}}
{{- fail (printf "%s.env: %s has a value and valueFrom: keep one of them" $.at $each.name) -}}
{{- end -}}
{{- $seen = append $seen $each.name -}}
{{- end -}}
{{- end }}

{{/*
Limits and requests, defaults included. Call with (dict "at" "agents" "resources" .Values.agents.resources).
*/}}
{{- define "nodedevice.check.resources" -}}
{{- range $name, $limit := .resources.limits -}}
{{- $request := get ($.resources.requests | default dict) $name -}}
{{- $isLess := lt (include "nodedevice.number" $limit | float64) (include "nodedevice.number" ($request | default 0) | float64) -}}
{{- if $isLess -}}
{{- fail (printf "%s.resources.limits.%s is %v, less than %s.resources.requests.%s, which is %v: raise the limit or lower the request" $.at $name $limit $.at $name $request) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/*
What a quantity of Kubernetes comes to: 1.5Ki is 1536.
*/}}
{{- define "nodedevice.number" -}}
{{- $units := dict "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18 -}}
{{- $units = merge $units (dict "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 "Ei" 1152921504606846976) -}}
{{- $unit := toString . | regexFind "[a-zA-Z]i?$" -}}
{{- mulf (toString . | trimSuffix $unit | float64) (get $units $unit | default 1 | float64) -}}
{{- end }}

{{/*
More volumes of the agents, and where they are mounted. Call with (dict "agents" .Values.agents "hostPaths" ...).
*/}}
{{- define "nodedevice.check.volumes" -}}
{{- $own := list "config" -}}
{{- range .hostPaths }}{{ $own = append $own .name }}{{ end -}}
{{- $names := $own -}}
{{- range $volume := .agents.extraVolumes -}}
{{- if has $volume.name $names -}}
{{- fail (printf "agents.extraVolumes: %s is the name of %s: choose another" $volume.name (ternary "one of the agent's own volumes" "two volumes" (has $volume.name $own))) -}}
{{- end -}}
{{- $names = append $names $volume.name -}}
{{- end -}}
{{- range $mount := .agents.extraVolumeMounts -}}
{{- if not (has $mount.name $names) -}}
{{- fail (printf "agents.extraVolumeMounts: there is no volume %s to be mounted at %s: add it to agents.extraVolumes" $mount.name $mount.mountPath) -}}
{{- end -}}
{{- include "nodedevice.check.mountPath" (dict "path" (clean $mount.mountPath) "hostPaths" $.hostPaths) -}}
{{- end -}}
{{- end }}

{{/*
A directory that something more is mounted at: it may lie beside and inside of most that the agent needs, never over it.
*/}}
{{- define "nodedevice.check.mountPath" -}}
{{- $needed := list "/bin" "/dev" "/etc/nodedevice" "/lib" "/lib64" "/opt/nodedevice" "/proc" "/sbin" "/sys" "/usr/bin" "/usr/lib" "/usr/lib64" "/usr/local/bin" "/usr/local/lib" "/var/run/secrets" -}}
{{- range $lib := list "/lib" "/usr/lib" }}{{ range list "aarch64" "x86_64" }}{{ $needed = append $needed (printf "%s/%s-linux-gnu" $lib .) }}{{ end }}{{ end -}}
{{- range .hostPaths }}{{ $needed = append $needed .path }}{{ end -}}
{{- $path := include "nodedevice.check.inImage" .path -}}
{{- range $own := $needed -}}
{{- $isInside := and (has $own (list "/etc/nodedevice" "/opt/nodedevice" "/proc")) (hasPrefix (include "nodedevice.check.inImage" $own) $path) -}}
{{- if or $isInside (hasPrefix $path (include "nodedevice.check.inImage" $own)) -}}
{{- fail (printf "agents.extraVolumeMounts: what is mounted at %s would hide the agent's own %s: choose another mountPath, such as one in /host" $.path $own) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/*
Where a directory lies in the image, with a slash at the end: there /var/run is a link to /run.
*/}}
{{- define "nodedevice.check.inImage" -}}
{{- regexReplaceAll "^/var/run/" (printf "%s/" (trimSuffix "/" .)) "/run/" -}}
{{- end }}
