{{/*
What of the host an agent gets, as a YAML list of name, path, readOnly and type; as little as its settings allow. All paths are the
same inside: what the agent tells others (plugins, runtime, kubelet) are the host's paths.
Defaults stand here a second time; a test holds them to the agent's own.
*/}}
{{- define "nodedevice.agent.hostPaths" -}}
{{- $config := .Values.agents.config -}}
{{- $runtime := $config.runtime | default "none" -}}
{{- $state := $config.stateDir | default "/var/lib/nodedevice" | clean -}}
{{- $plugins := $config.pluginDir | default "/var/lib/nodedevice/device-plugins" | clean -}}
{{- $kubelet := $config.kubeletDir | default "/var/lib/kubelet" | clean -}}
# checkpoint, and below it the sockets where plugins register and monitors ask
- {name: state, path: {{ $state | quote }}, readOnly: false, type: DirectoryOrCreate}
{{- if not (hasPrefix (printf "%s/" $state) (printf "%s/" $plugins)) }}
- {name: plugins, path: {{ $plugins | quote }}, readOnly: false, type: DirectoryOrCreate}
{{- end }}
{{- with $config.podResourcesSocket }}
{{- if not (hasPrefix (printf "%s/" $state) .) }}
- {name: monitors, path: {{ dir . | quote }}, readOnly: false, type: DirectoryOrCreate}
{{- end }}
{{- end }}
{{- with $config.pluginsRegistryDir }}
# only looked into and dialled
- {name: plugins-registry, path: {{ . | clean | quote }}, readOnly: true, type: DirectoryOrCreate}
{{- end }}
# device files are looked at, never opened: their numbers go into containers, and they come and go
- {name: dev, path: /dev, readOnly: true, type: Directory}
{{- if has $runtime (list "auto" "kubelet") }}
# the agent is a plugin of the kubelet's: its sockets lie here
- {name: kubelet-plugins, path: {{ printf "%s/device-plugins" $kubelet | quote }}, readOnly: false, type: Directory}
# who holds what is asked here
- {name: kubelet-pod-resources, path: {{ printf "%s/pod-resources" $kubelet | quote }}, readOnly: true, type: Directory}
{{- else if eq $runtime "nri" }}
# names that the kubelet has are left to it: they stand in its checkpoint
- {name: kubelet-plugins, path: {{ printf "%s/device-plugins" $kubelet | quote }}, readOnly: true, type: Directory}
{{- end }}
{{- if has $runtime (list "auto" "nri") }}
# a socket can be dialled where nothing can be written. Where the runtime has no NRI, the directory stays empty
- {name: nri, path: {{ $config.nriSocket | default "/var/run/nri/nri.sock" | dir | quote }}, readOnly: true, type: DirectoryOrCreate}
{{- end }}
{{- end }}
