{{/*
The agents' settings, as JSON; what the pods are replaced by when it changes is a sum of this same text.
*/}}
{{- define "nodedevice.agent.settings" -}}
{{- toPrettyJson (merge (dict "observe" .Values.agents.observe "observeDra" (ne (include "nodedevice.observesDra" .) "") "allowedHostPaths" .Values.agents.allowedHostPaths) .Values.agents.config) -}}
{{- end }}

{{/*
Whether what DRA drivers offer is shown: `true` or nothing.
*/}}
{{- define "nodedevice.observesDra" -}}
{{- if and .Values.agents.observe .Values.agents.observeDra }}true{{ end -}}
{{- end }}

{{/*
How devices reach containers, of agents.config: `runtime` is the former name of `delivery`, and counts where that is auto.
*/}}
{{- define "nodedevice.agent.delivery" -}}
{{- first (append (without (compact (list .delivery .runtime)) "auto") "auto") -}}
{{- end }}

{{/*
What of the host an agent gets, as a JSON list; as little as its settings allow. All paths are the same inside: those that the agent
gives to others (plugins, runtime, kubelet) are the host's. setting: which one leads there; none for what is always so.
Defaults stand here a second time; a test holds them to the agent's own.
*/}}
{{- define "nodedevice.agent.hostPaths" -}}
{{- $config := .Values.agents.config -}}
{{- $delivery := include "nodedevice.agent.delivery" $config -}}
{{- $state := $config.stateDir | default "/var/lib/nodedevice" | clean -}}
{{- $plugins := $config.pluginDir | default "/var/lib/nodedevice/device-plugins" | clean -}}
{{- $kubelet := $config.kubeletDir | default "/var/lib/kubelet" | clean -}}
{{- /* checkpoint, and below it the sockets where plugins register and monitors ask */ -}}
{{- $paths := list (dict "name" "state" "setting" "stateDir" "path" $state "type" "DirectoryOrCreate") -}}
{{- if not (hasPrefix (printf "%s/" $state) (printf "%s/" $plugins)) -}}
{{- $paths = append $paths (dict "name" "plugins" "setting" "pluginDir" "path" $plugins "type" "DirectoryOrCreate") -}}
{{- end -}}
{{- with $config.podResourcesSocket -}}
{{- $monitors := dir . -}}
{{- if not (or (hasPrefix (printf "%s/" $state) (printf "%s/" $monitors)) (hasPrefix (printf "%s/" $plugins) (printf "%s/" $monitors))) -}}
{{- $paths = append $paths (dict "name" "monitors" "setting" "podResourcesSocket" "path" $monitors "type" "DirectoryOrCreate") -}}
{{- end -}}
{{- end -}}
{{- with $config.pluginsRegistryDir -}}
{{- /* only listed and dialled */ -}}
{{- $registry := dict "name" "plugins-registry" "setting" "pluginsRegistryDir" "path" (clean .) "readOnly" true "type" "DirectoryOrCreate" -}}
{{- $paths = append $paths $registry -}}
{{- end -}}
{{- /* the agent reads the numbers of device files and never opens them; files appear and disappear */ -}}
{{- $paths = append $paths (dict "name" "dev" "path" "/dev" "readOnly" true "type" "Directory") -}}
{{- /* properties of devices from udevd, for resources that select by them; every container has sysfs */ -}}
{{- $udev := .Values.agents.udev -}}
{{- range $resource := ($config.plugins | default dict).generic | default list -}}
{{- range $group := $resource.groups -}}
{{- $udev = or $udev (not (empty ($group.select | default dict).udev)) -}}
{{- end -}}
{{- end -}}
{{- if $udev -}}
{{- $paths = append $paths (dict "name" "udev" "path" "/run/udev" "readOnly" true "type" "DirectoryOrCreate") -}}
{{- end -}}
{{- /* CDI specifications: for handOver auto and cdi of the nvml plugin, and for the files of DRA drivers' devices */ -}}
{{- $built := $config.plugins | default dict -}}
{{- $cdi := .Values.agents.cdi -}}
{{- $ofThisBoot := $cdi -}}
{{- if eq (toString $cdi) "auto" -}}
{{- $cdi = false -}}
{{- if kindIs "map" $built.nvml -}}
{{- $handOver := $built.nvml.handOver | default (list "auto") -}}
{{- $cdi = or (has "auto" $handOver) (has "cdi" $handOver) -}}
{{- end -}}
{{- /* drivers write here; a missing /etc/cdi would be created, which some nodes do not allow */ -}}
{{- $ofThisBoot = or $cdi (include "nodedevice.observesDra" .) -}}
{{- end -}}
{{- if eq ($built.hostRoot | default "/") "/" -}}
{{- if $cdi -}}
{{- $paths = append $paths (dict "name" "cdi" "path" "/etc/cdi" "readOnly" true "type" "DirectoryOrCreate") -}}
{{- end -}}
{{- if $ofThisBoot -}}
{{- $paths = append $paths (dict "name" "cdi-of-this-boot" "path" "/var/run/cdi" "readOnly" true "type" "DirectoryOrCreate") -}}
{{- end -}}
{{- end -}}
{{- range $number, $allowed := .Values.agents.allowedHostPaths -}}
{{- $path := clean $allowed -}}
{{- if not (hasPrefix "/dev/" (printf "%s/" $path)) -}}
{{- $paths = append $paths (dict "name" (printf "allowed-%d" $number) "setting" "allowedHostPaths" "path" $path "readOnly" true "type" "DirectoryOrCreate") -}}
{{- end -}}
{{- end -}}
{{- /* the sockets of the kubelet's device plugins, such as the agent. With nri the agent does not serve the kubelet's resources. The
kubelet's checkpoint lists these and their allocations, which agents.observe publishes */ -}}
{{- $ofKubelet := dict "setting" "kubeletDir" "type" "Directory" -}}
{{- $asPlugin := has $delivery (list "auto" "kubelet") -}}
{{- if or $asPlugin (eq $delivery "nri") .Values.agents.observe -}}
{{- $devicePlugins := dict "name" "kubelet-plugins" "path" (printf "%s/device-plugins" $kubelet) "readOnly" (not $asPlugin) -}}
{{- $paths = append $paths (merge $devicePlugins $ofKubelet) -}}
{{- /* the kubelet's PodResources, for observed resources. With nri: a List call makes the kubelet
release the old devices of resources that moved to the agent */ -}}
{{- $podResources := dict "name" "kubelet-pod-resources" "path" (printf "%s/pod-resources" $kubelet) "readOnly" true -}}
{{- $paths = append $paths (merge $podResources $ofKubelet) -}}
{{- end -}}
{{- /* a socket accepts connections on a read-only mount. Without NRI in the runtime the directory stays empty. Needed with every delivery: a
pod that is marked to wait for the agent waits for its NRI connection */ -}}
{{- $nri := dir ($config.nriSocket | default "/var/run/nri/nri.sock") -}}
{{- $paths = append $paths (dict "name" "nri" "setting" "nriSocket" "path" $nri "readOnly" true "type" "DirectoryOrCreate") -}}
{{- /* the runtime's configuration, for one of its options. Mounted only on request: its path differs between nodes, and a missing
directory would be created */ -}}
{{- with $config.runtimeConfig -}}
{{- $paths = append $paths (dict "name" "runtime-config" "setting" "runtimeConfig" "path" (dir .) "readOnly" true "type" "DirectoryOrCreate") -}}
{{- end -}}
{{- toJson $paths -}}
{{- end }}
