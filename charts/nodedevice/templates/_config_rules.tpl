{{/*
Reads config_rules.json as nodedevice_kube.config_rules reads it, so that helm reports what agents and `kubectl nodedevice config validate`
report, and all of it at once. Nothing is rendered here. Once a release: all templates have the same values.
*/}}
{{- define "nodedevice.check.rules" -}}
{{- if not (hasKey .Values "_checked") -}}
{{- $rule := .Files.Get "config_rules.json" | fromJson -}}
{{- $found := dict "list" list -}}
{{- include "nodedevice.rules" (dict "value" (omit .Values "_checked") "rule" $rule "path" "" "places" (get $rule "x-places" | default dict) "found" $found) -}}
{{- $_ := set .Values "_checked" true -}}
{{- if eq (len $found.list) 1 -}}
{{- fail (first $found.list) -}}
{{- else if $found.list -}}
{{- fail (printf "%d mistakes:\n  %s" (len $found.list) (join "\n  " $found.list)) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* Adds a mistake. Call with (dict "found" ... "path" ... "text" ...). */}}
{{- define "nodedevice.rules.note" -}}
{{- $_ := set .found "list" (append .found.list (printf "%s: %s" (.path | default "the values") .text)) -}}
{{- end }}

{{/* A value as it is shown. */}}
{{- define "nodedevice.rules.shown" -}}
{{- $text := toRawJson . -}}
{{- if gt (len $text) 40 }}{{ trunc 40 $text }}…{{ else }}{{ $text }}{{ end -}}
{{- end }}

{{/* The mistakes in a value. */}}
{{- define "nodedevice.rules" -}}
{{- $value := .value }}{{ $rule := .rule }}{{ $kind := get $rule "type" -}}
{{- with get $rule "x-refused" }}{{ include "nodedevice.rules.note" (dict "found" $.found "path" $.path "text" .) }}{{ end -}}
{{- if not (and (kindIs "invalid" $value) $rule.nullable) -}}
{{- $isWhole := or (kindIs "int" $value) (kindIs "int64" $value) (and (kindIs "float64" $value) (eq (toString (floor $value)) (toString $value))) -}}
{{- $isOf := dict "object" (kindIs "map" $value) "array" (kindIs "slice" $value) "string" (kindIs "string" $value) "boolean" (kindIs "bool" $value) "integer" $isWhole "number" (or $isWhole (kindIs "float64" $value)) -}}
{{- if and $kind (not (get $isOf $kind)) -}}
{{- include "nodedevice.rules.note" (dict "found" .found "path" .path "text" (include "nodedevice.rules.wrongType" (dict "value" $value "kind" $kind "rule" $rule "isNumber" $isOf.number))) -}}
{{- else if kindIs "map" $value -}}
{{- include "nodedevice.rules.object" . -}}
{{- else if kindIs "slice" $value -}}
{{- include "nodedevice.rules.list" . -}}
{{- else -}}
{{- with include "nodedevice.rules.scalar" . -}}
{{- include "nodedevice.rules.note" (dict "found" $.found "path" $.path "text" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "nodedevice.rules.wrongType" -}}
{{- $names := dict "object" "an object with keys" "array" "a list" "string" "text" "integer" "a whole number" "number" "a number" "boolean" "a boolean" -}}
{{- include "nodedevice.rules.shown" .value }} is not {{ get $names .kind | default .kind -}}
{{- $example := get .rule "x-example" -}}
{{- if and (eq .kind "string") (or .isNumber (kindIs "bool" .value)) -}}
: put it in quotes{{ with $example }}, such as {{ toJson . }}{{ end -}}
{{- if and (eq (len $example) 4) .isNumber (eq (toString (floor .value)) (toString .value)) (lt (int .value) 4096) (gt (int .value) 1) }} (YAML takes {{ printf "0%o" (int .value) }} without quotes for {{ int .value }}){{ end -}}
{{- else if and (kindIs "string" .value) (has .kind (list "integer" "number" "boolean")) -}}
: write {{ ternary "true or false" "a number" (eq .kind "boolean") }} without quotes
{{- else if eq .kind "array" -}}
: begin each entry with -
{{- else if kindIs "invalid" .value -}}
: remove the key, or set it
{{- end -}}
{{- end }}

{{- define "nodedevice.rules.object" -}}
{{- $rule := .rule }}{{ $value := .value }}{{ $path := .path }}{{ $found := .found }}{{ $places := .places -}}
{{- $before := len $found.list -}}
{{- $prefix := empty $path | ternary "" (printf "%s." $path) -}}
{{- range $rule.required -}}
{{- if not (hasKey $value .) }}{{ include "nodedevice.rules.note" (dict "found" $found "path" (print $prefix .) "text" "is missing") }}{{ end -}}
{{- end -}}
{{- with $rule.maxProperties -}}
{{- if gt (len $value) (int .) }}{{ include "nodedevice.rules.note" (dict "found" $found "path" $path "text" (printf "has %d keys, and at most %v are possible" (len $value) .)) }}{{ end -}}
{{- end -}}
{{- range $key, $each := $value -}}
{{- $here := print $prefix $key -}}
{{- if hasKey ($rule.properties | default dict) $key -}}
{{- include "nodedevice.rules" (dict "value" $each "rule" (get $rule.properties $key) "path" $here "places" $places "found" $found) -}}
{{- else if kindIs "map" $rule.additionalProperties -}}
{{- with include "nodedevice.rules.text" (dict "value" $key "rules" (get $rule "x-keys" | default list)) -}}
{{- include "nodedevice.rules.note" (dict "found" $found "path" $here "text" .) -}}
{{- end -}}
{{- include "nodedevice.rules" (dict "value" $each "rule" $rule.additionalProperties "path" $here "places" $places "found" $found) -}}
{{- else if hasKey $rule "properties" -}}
{{- $known := keys $rule.properties | sortAlpha -}}
{{- $near := include "nodedevice.rules.closest" (dict "word" $key "known" $known) -}}
{{- $text := printf "known: %s" (join ", " $known) -}}
{{- if $near }}{{ $text = printf "did you mean %s?" $near }}{{ else if get $places $key }}{{ $text = printf "it belongs below %s" (get $places $key) }}{{ end -}}
{{- include "nodedevice.rules.note" (dict "found" $found "path" $here "text" (print "unknown key; " $text)) -}}
{{- end -}}
{{- end -}}
{{- $isClean := eq $before (len $found.list) -}}
{{- range $each := get $rule "x-rules" | default list -}}
{{- if $each.check -}}
{{- if or $isClean $each.always }}{{ include (printf "nodedevice.rules.%s" $each.check) (dict "value" $value "path" $path "prefix" $prefix "found" $found) }}{{ end -}}
{{- else -}}
{{- $count := 0 -}}
{{- $keys := $each.oneOf | default $each.anyOf | default $each.excludes -}}
{{- range $key := $keys -}}
{{- $one := get $value $key -}}
{{- if and (hasKey $value $key) (or $one (and (kindIs "map" $one) (not (hasKey (get $rule.properties $key) "additionalProperties")))) }}{{ $count = add1 $count }}{{ end -}}
{{- end -}}
{{- $isBroken := ternary (ne (int $count) 1) (eq (int $count) (len $keys)) (hasKey $each "oneOf") -}}
{{- if hasKey $each "anyOf" }}{{ $isBroken = eq (int $count) 0 }}{{ end -}}
{{- if $isBroken }}{{ include "nodedevice.rules.note" (dict "found" $found "path" $path "text" $each.message) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "nodedevice.rules.list" -}}
{{- $rule := .rule }}{{ $size := len .value -}}
{{- if lt $size (int ($rule.minItems | default 0)) }}{{ include "nodedevice.rules.note" (dict "found" .found "path" .path "text" (printf "has %d entries, and needs %v" $size $rule.minItems)) }}{{ end -}}
{{- if gt $size (int ($rule.maxItems | default $size)) }}{{ include "nodedevice.rules.note" (dict "found" .found "path" .path "text" (printf "has %d entries, and at most %v are possible" $size $rule.maxItems)) }}{{ end -}}
{{- range $at, $each := .value -}}
{{- include "nodedevice.rules" (dict "value" $each "rule" ($rule.items | default dict) "path" (printf "%s[%d]" $.path $at) "places" $.places "found" $.found) -}}
{{- end -}}
{{- range get $rule "x-rules" | default list -}}
{{- if and .alone (has .alone $.value) (gt $size 1) }}{{ include "nodedevice.rules.note" (dict "found" $.found "path" $.path "text" .message) }}{{ end -}}
{{- end -}}
{{- end }}

{{/* What is wrong with a text, a number or a truth value; empty if nothing is. */}}
{{- define "nodedevice.rules.scalar" -}}
{{- $rule := .rule }}{{ $value := .value -}}
{{- if and $rule.enum (not (has $value $rule.enum)) -}}
{{- $near := include "nodedevice.rules.closest" (dict "word" (toString $value) "known" (sortAlpha $rule.enum)) -}}
{{- include "nodedevice.rules.shown" $value }} is not one of {{ join ", " $rule.enum }}{{ with $near }}; did you mean {{ . }}?{{ end -}}
{{- else if kindIs "string" $value -}}
{{- $size := len (regexFindAll "(?s)." $value -1) -}}
{{- $least := int ($rule.minLength | default 0) }}{{ $most := int ($rule.maxLength | default $size) -}}
{{- if or (lt $size $least) (gt $size $most) -}}
has {{ $size }} characters; {{ $least }} to {{ $most }} are possible
{{- else if not (and (empty $value) (get $rule "x-or-empty")) -}}
{{- $problem := include "nodedevice.rules.text" (dict "value" $value "rules" (get $rule "x-rules" | default list)) -}}
{{- if $problem }}{{ $problem }}{{ else if and $rule.pattern (not (regexMatch $rule.pattern $value)) }}{{ include "nodedevice.rules.shown" $value }} is not of the form {{ $rule.pattern }}{{ end -}}
{{- end -}}
{{- else if not (kindIs "bool" $value) -}}
{{- $number := float64 $value -}}
{{- $isSmall := and (hasKey $rule "minimum") (or (lt $number (float64 $rule.minimum)) (and $rule.exclusiveMinimum (eq $number (float64 $rule.minimum)))) -}}
{{- $isBig := and (hasKey $rule "maximum") (or (gt $number (float64 $rule.maximum)) (and $rule.exclusiveMaximum (eq $number (float64 $rule.maximum)))) -}}
{{- if or $isSmall $isBig -}}
{{- include "nodedevice.rules.shown" $value }} is not possible; {{ if hasKey $rule "maximum" }}{{ if $rule.exclusiveMinimum }}more than {{ $rule.minimum }}, up{{ else }}{{ $rule.minimum }}{{ end }} to {{ $rule.maximum }}{{ else }}{{ $rule.minimum }} or more{{ end }} is
{{- end -}}
{{- end -}}
{{- end }}

{{/* What is wrong with a text by the first rule that it breaks. Call with (dict "value" ... "rules" ...). */}}
{{- define "nodedevice.rules.text" -}}
{{- $value := .value }}{{ $rules := .rules }}{{ $isFound := false -}}
{{- range $rules -}}
{{- if and (not $isFound) (include "nodedevice.rules.breaks" (dict "value" $value "rule" .)) -}}
{{- $isFound = true -}}
{{- $meant := "" -}}
{{- range .fixes -}}
{{- if and $value (empty $meant) -}}
{{- $domain := regexFind "^[^/]*" $value -}}
{{- $fixed := ternary (print (lower $domain) (trimPrefix $domain $value)) (regexReplaceAll (eq (first .) "lower" | ternary "^" (first .)) $value (last . | replace "\\1" "${1}")) (eq (first .) "lower") -}}
{{- $isRight := true -}}
{{- range $rules }}{{ if include "nodedevice.rules.breaks" (dict "value" $fixed "rule" .) }}{{ $isRight = false }}{{ end }}{{ end -}}
{{- if $isRight }}{{ $meant = $fixed }}{{ end -}}
{{- end -}}
{{- end -}}
{{- include "nodedevice.rules.shown" $value }} {{ .message }}{{ with $meant }}; did you mean {{ include "nodedevice.rules.shown" . }}?{{ end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "nodedevice.rules.breaks" -}}
{{- if ternary (not (regexMatch (get .rule "is" | default "^") .value)) (regexMatch (get .rule "not" | default "^") .value) (hasKey .rule "is") }}yes{{ end -}}
{{- end }}

{{/* The word that was probably meant: with three quarters of the letters, whatever their order. Call with (dict "word" ... "known" ...). */}}
{{- define "nodedevice.rules.closest" -}}
{{- $word := lower .word | trunc 100 }}{{ $best := 74 }}{{ $near := "" -}}
{{- range $each := .known -}}
{{- $other := lower $each }}{{ $both := 0 -}}
{{- range regexFindAll "." $word -1 | uniq }}{{ $both = add $both (min (sub (len (splitList . $word)) 1) (sub (len (splitList . $other)) 1)) }}{{ end -}}
{{- $score := div (mul 200 $both) (add (len $word) (len $other)) -}}
{{- if gt (int $score) (int $best) }}{{ $best = $score }}{{ $near = $each }}{{ end -}}
{{- end -}}
{{- $near -}}
{{- end }}
