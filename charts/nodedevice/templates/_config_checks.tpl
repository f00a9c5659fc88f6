{{/*
The checks of nodedevice_kube.config_checks, under their names. Each is called with (dict "value" ... "path" ... "prefix" "path." "found" ...).
*/}}
{{- define "nodedevice.rules.wildcards" -}}
{{- regexFindAll "(?s)[*]|[?]|\\[(?:!.|[^!])[^\\]]*\\]" . -1 | len -}}
{{- end }}

{{- define "nodedevice.rules.group" -}}
{{- $counts := list }}{{ $isNaming := false -}}
{{- range .value.paths }}{{ $counts = append $counts (include "nodedevice.rules.wildcards" .path | int) }}{{ end -}}
{{- $isPlain := empty (without $counts 0) -}}
{{- range $at, $each := .value.paths -}}
{{- if and (or $isPlain (index $counts $at)) (not $each.optional) }}{{ $isNaming = true }}{{ end -}}
{{- end -}}
{{- if gt (without $counts 0 | uniq | len) 1 -}}
{{- include "nodedevice.rules.note" (dict "found" .found "path" (print .prefix "paths") "text" "wildcard paths of one group are joined by what their wildcards match, so each needs the same number of wildcards; split the group") -}}
{{- end -}}
{{- if and .value.paths (not $isNaming) -}}
{{- include "nodedevice.rules.note" (dict "found" .found "path" (print .prefix "paths") "text" "devices are named after the first path that is not optional, of wildcard paths if there are any; remove optional from one") -}}
{{- end -}}
{{- end }}

{{/* What the devices of a group are named after. Call with the group. */}}
{{- define "nodedevice.rules.nameOf" -}}
{{- if kindIs "map" .select -}}
{{- $selected := dict -}}
{{- range $key, $each := .select -}}
{{- $kept := $each -}}
{{- if and (eq $key "usb") (kindIs "map" $each) -}}
{{- $kept = dict -}}
{{- range $name, $text := $each }}{{ if $text }}{{ $_ := set $kept $name $text }}{{ end }}{{ end -}}
{{- end -}}
{{- if and $each (not (and (eq $key "permissions") (eq (toString $each) "rw"))) }}{{ $_ := set $selected $key $kept }}{{ end -}}
{{- end -}}
{{- toRawJson $selected -}}
{{- else if kindIs "slice" .paths -}}
{{- $best := 9 }}{{ $name := "" -}}
{{- range .paths -}}
{{- if and (kindIs "map" .) (kindIs "string" (get (kindIs "map" . | ternary . dict) "path")) -}}
{{- $rank := add (ternary 2 0 (eq (toString .optional) "true")) (ternary 1 0 (eq (include "nodedevice.rules.wildcards" .path) "0")) -}}
{{- if lt (int $rank) (int $best) }}{{ $best = $rank }}{{ $name = .path }}{{ end -}}
{{- end -}}
{{- end -}}
{{- $name -}}
{{- end -}}
{{- end }}

{{- define "nodedevice.rules.groups" -}}
{{- $first := dict -}}
{{- range $at, $group := kindIs "slice" .value.groups | ternary .value.groups list -}}
{{- if kindIs "map" $group -}}
{{- with include "nodedevice.rules.nameOf" $group -}}
{{- if hasKey $first . -}}
{{- include "nodedevice.rules.note" (dict "found" $.found "path" (printf "%sgroups[%d]" $.prefix $at) "text" (printf "its devices are named after %s, like the devices of groups[%d]; join them" . (get $first .))) -}}
{{- else }}{{ $_ := set $first . $at }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "nodedevice.rules.simulated" -}}
{{- $count := hasKey .value "count" | ternary .value.count 1 | int }}{{ $parts := .value.partsPerDevice | default 1 | int -}}
{{- if gt (mul $count $parts | int) 10000 -}}
{{- include "nodedevice.rules.note" (dict "found" .found "path" (print .prefix "partsPerDevice") "text" (printf "%d devices of %d parts are too many; simulate 10000 parts at most" $count $parts)) -}}
{{- end -}}
{{- end }}

{{- define "nodedevice.rules.names" -}}
{{- $named := list -}}
{{- range $kind := keys .value | sortAlpha -}}
{{- range $at, $each := kindIs "slice" (get $.value $kind) | ternary (get $.value $kind) list -}}
{{- if kindIs "map" $each -}}
{{- if kindIs "string" $each.resourceName }}{{ $named = append $named (dict "path" (printf "%s%s[%d]" $.prefix $kind $at) "name" $each.resourceName) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if kindIs "map" .value.nvml -}}
{{- $gpus := (include "nodedevice.rules.whole" .value.nvml | fromJson).names -}}
{{- range (include "nodedevice.rules.uses" .value.nvml | fromJson).uses }}{{ $gpus = append $gpus .name }}{{ end -}}
{{- range uniq $gpus }}{{ $named = append $named (dict "path" (print $.prefix "nvml") "name" .) }}{{ end -}}
{{- end -}}
{{- $seen := list -}}
{{- range $named -}}
{{- if has .name $seen }}{{ include "nodedevice.rules.note" (dict "found" $.found "path" .path "text" (printf "%s is named twice; give each resource one entry, with all its groups" .name)) }}{{ end -}}
{{- $seen = append $seen .name -}}
{{- end -}}
{{- end }}

{{/* Names of whole GPUs, as JSON. Call with the settings of nvml. */}}
{{- define "nodedevice.rules.whole" -}}
{{- $names := list (hasKey . "resourceName" | ternary .resourceName "nvidia.com/gpu") -}}
{{- if kindIs "map" .modelResourceNames }}{{ range .modelResourceNames }}{{ $names = append $names . }}{{ end }}{{ end -}}
{{- $texts := list }}{{ range $names }}{{ if kindIs "string" . }}{{ $texts = append $texts . }}{{ end }}{{ end -}}
{{- dict "names" (uniq $texts) | toJson -}}
{{- end }}

{{/* Each resource name, what its devices are parts of, and who names it so, as JSON. Call with the settings of nvml. */}}
{{- define "nodedevice.rules.uses" -}}
{{- $whole := (include "nodedevice.rules.whole" . | fromJson).names }}{{ $uses := list }}{{ $isRest := false -}}
{{- $rules := kindIs "slice" .sharing | ternary .sharing list -}}
{{- range $rules }}{{ if kindIs "map" . }}{{ if not (or .models .indexes) }}{{ $isRest = true }}{{ end }}{{ end }}{{ end -}}
{{- if not $isRest }}{{ range $whole }}{{ $uses = append $uses (dict "name" . "parts" "" "who" "GPUs that no rule matches") }}{{ end }}{{ end -}}
{{- if eq (toString .mig) "single" }}{{ range $whole }}{{ $uses = append $uses (dict "name" . "parts" "" "who" "mig: single") }}{{ end }}{{ end -}}
{{- range $at, $rule := $rules -}}
{{- range $use := kindIs "map" $rule | ternary (list "whole" "shares" "memory") list -}}
{{- $parts := get $rule $use -}}
{{- if kindIs "map" $parts -}}
{{- $names := $whole -}}
{{- if and (eq $use "shares") (eq (toString $parts.renameByDefault) "true") }}{{ $names = list }}{{ range $whole }}{{ $names = append $names (print . ".shared") }}{{ end }}{{ end -}}
{{- with $parts.resourceName | default (eq $use "memory" | ternary "aliyun.com/gpu-mem" "") }}{{ if kindIs "string" . }}{{ $names = list . }}{{ end }}{{ end -}}
{{- $alike := eq $use "whole" | ternary "" (print $use (include "nodedevice.rules.alike" (dict "use" $use "parts" $parts))) -}}
{{- range $names }}{{ $uses = append $uses (dict "name" . "parts" $alike "who" (printf "sharing[%d]" $at)) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- dict "uses" $uses | toJson -}}
{{- end }}

{{/* What has to be equal in all rules of one resource, as JSON. */}}
{{- define "nodedevice.rules.alike" -}}
{{- $limits := dict "memory" true "smPercent" 0 "oversubscribe" true "library" "" "preload" "/usr/local/vgpu/ld.so.preload" "directory" "/usr/local/vgpu/containers" "mountPath" "/tmp/vgpu" "lock" "/tmp/vgpulock" -}}
{{- $mps := dict "pipeDirectory" "/tmp/nvidia-mps" "shmDirectory" "/dev/shm" -}}
{{- $found := dict "choice" "binpack" "containers" "any" "advertise" "sum" "unit" "1Gi" "failRequestsGreaterThanOne" false "limits" (eq .use "memory" | ternary (dict) nil) "mps" nil -}}
{{- range $key, $_ := $found }}{{ if hasKey $.parts $key }}{{ $_ := set $found $key (get $.parts $key) }}{{ end }}{{ end -}}
{{- if kindIs "map" $found.limits }}{{ $_ := set $found "limits" (mergeOverwrite $limits (deepCopy $found.limits)) }}{{ end -}}
{{- if kindIs "map" $found.mps }}{{ $_ := set $found "mps" (mergeOverwrite $mps (deepCopy $found.mps)) }}{{ end -}}
{{- toJson $found -}}
{{- end }}

{{- define "nodedevice.rules.nvml" -}}
{{- range $xid := .value.harmlessXids -}}
{{- if has $xid ($.value.criticalXids | default list) }}{{ include "nodedevice.rules.note" (dict "found" $.found "path" (print $.prefix "harmlessXids") "text" (printf "%v is in criticalXids too; keep it in one of them" $xid)) }}{{ break }}{{ end -}}
{{- end -}}
{{- $rules := .value.sharing | default list -}}
{{- range $other, $later := $rules -}}
{{- range $one, $rule := slice $rules 0 $other -}}
{{- $isRest := not (or $rule.models $rule.indexes) }}{{ $isRestToo := not (or $later.models $later.indexes) -}}
{{- $isBoth := false }}{{ $differs := false -}}
{{- range $key := list "models" "indexes" -}}
{{- $both := false }}{{ range get $rule $key | default list }}{{ if has . (get $later $key | default list) }}{{ $both = true }}{{ end }}{{ end -}}
{{- if $both }}{{ $isBoth = true }}{{ else if and (get $rule $key) (get $later $key) }}{{ $differs = true }}{{ end -}}
{{- end -}}
{{- if ternary (and $isRest $isRestToo) (and $isBoth (not $differs)) (or $isRest $isRestToo) -}}
{{- include "nodedevice.rules.note" (dict "found" $.found "path" (printf "%ssharing[%d]" $.prefix $other) "text" (printf "it is for GPUs that sharing[%d] matches; a GPU has one use" $one)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $domain := splitList "/" (.value.resourceName | default "nvidia.com/gpu") | first -}}
{{- $first := dict }}{{ $refused := list -}}
{{- range (include "nodedevice.rules.uses" .value | fromJson).uses -}}
{{- if not (has .who $refused) -}}
{{- if not (hasKey $first .name) }}{{ $_ := set $first .name . }}{{ end -}}
{{- $known := get $first .name }}{{ $text := "" -}}
{{- if and (eq (toString $.value.mig) "mixed") (hasPrefix (printf "%s/mig-" $domain) .name) -}}
{{- $text = printf "%s is a name of MIG instances (mig: mixed); set another resourceName" .name -}}
{{- else if gt (splitList "/" .name | last | len) 63 -}}
{{- $text = printf "%s has more than 63 characters after the slash; set resourceName" .name -}}
{{- else if ne $known.parts .parts -}}
{{- $text = printf "%s is the name of other devices already (%s); set another resourceName, or renameByDefault" .name $known.who -}}
{{- end -}}
{{- if $text -}}
{{- $refused = append $refused .who -}}
{{- include "nodedevice.rules.note" (dict "found" $.found "path" (print $.prefix (hasPrefix "sharing" .who | ternary .who "resourceName")) "text" $text) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "nodedevice.rules.settings" -}}
{{- $given := compact (list .value.delivery .value.runtime) -}}
{{- $chosen := without $given "auto" -}}
{{- $delivery := first (concat $chosen $given (list "none")) -}}
{{- if gt (len (uniq $chosen)) 1 -}}
{{- include "nodedevice.rules.note" (dict "found" .found "path" (print .prefix "runtime") "text" (printf "is the former name of delivery, which is %v; remove runtime" $delivery)) -}}
{{- end -}}
{{- if and .value.advertiseWithoutInjection (ne (toString $delivery) "none") -}}
{{- include "nodedevice.rules.note" (dict "found" .found "path" (print .prefix "advertiseWithoutInjection") "text" (printf "is for delivery none, and the delivery is %v; remove one of them" $delivery)) -}}
{{- end -}}
{{- range regexFindAll "[0-9]+-[0-9]+" (kindIs "string" .value.numaNodes | ternary .value.numaNodes "") -1 -}}
{{- $ends := splitList "-" . -}}
{{- if gt (first $ends | atoi) (last $ends | atoi) -}}
{{- include "nodedevice.rules.note" (dict "found" $.found "path" (print $.prefix "numaNodes") "text" (printf "%s ends before it begins: the smaller number is the first" .)) -}}
{{- end -}}
{{- end -}}
{{- end }}
