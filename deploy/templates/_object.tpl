{{- /*
One object of the manifests, changed by the values; nothing if they leave it out.
The argument: chart, the root of the template; text, the object in YAML; and the namespace of the object, if
it is not that of the manifest. Text is replaced in JSON, where a name such as 2024 stays a string.
*/}}
{{- define "railwright.object" }}
{{- $values := .chart.Values }}
{{- $json := .text | fromYaml | toJson | replace "railwright-system" .chart.Release.Namespace }}
{{- range list "operator" "controllers" "agent" "launcher" }}
{{- $json = regexReplaceAll (printf "example\\.com/railwright-%s:[0-9.]+" .) $json (include "railwright.image" (dict "chart" $.chart "name" .)) }}
{{- end }}
{{- $object := fromJson $json }}
{{- with $object.Error }}{{ fail . }}{{ end }}
{{- with .namespace }}{{ $_ := set $object.metadata "namespace" . }}{{ end }}
{{- $isPolicy := eq ($object.kind | default "") "NetworkPolicy" }}
{{- $isOfMonitors := and (eq (dig "metadata" "name" "" $object) "railwright-metrics") (ne $object.kind "ClusterRole") }}
{{- if and $object.kind (ne $object.kind "Namespace") (or $values.networkPolicy.enabled (not $isPolicy)) (or $values.podMonitor.enabled (not $isOfMonitors)) }}
{{- $labels := dict "app.kubernetes.io/name" "railwright" "app.kubernetes.io/instance" .chart.Release.Name "app.kubernetes.io/managed-by" .chart.Release.Service "app.kubernetes.io/version" (replace "+" "_" .chart.Chart.AppVersion) }}
{{- $_ := set $object.metadata "labels" (merge $labels ($object.metadata.labels | default dict) ($values.commonLabels | default dict)) }}
{{- if has $object.kind (list "Deployment" "DaemonSet") }}
{{- include "railwright.pods" (dict "object" $object "values" $values) }}
{{- end }}
{{- if $isPolicy }}
{{- include "railwright.peers" (dict "object" $object "values" $values) }}
{{- end }}
---
{{ toYaml $object }}
{{- end }}
{{- end }}

{{- /* The image of this name. */}}
{{- define "railwright.image" }}
{{- $images := .chart.Values.images }}
{{- $tag := $images.tag | default (replace "+" "_" .chart.Chart.AppVersion) }}
{{- $digest := get ($images.digests | default dict) .name }}
{{- printf "%s/railwright-%s:%s" $images.registry .name $tag }}{{ with $digest }}@{{ . }}{{ end }}
{{- end }}

{{- /* Changes the replicas and the pods of a workload. Maps are merged, other values replace. */}}
{{- define "railwright.pods" }}
{{- $its := get .values (trimPrefix "railwright-" .object.metadata.name) }}
{{- $template := .object.spec.template }}
{{- $container := first $template.spec.containers }}
{{- with $its.replicas }}{{ $_ := set $.object.spec "replicas" . }}{{ end }}
{{- with .values.images.pullSecrets }}{{ $_ := set $template.spec "imagePullSecrets" . }}{{ end }}
{{- $_ := set $template.metadata "labels" (merge $template.metadata.labels ($its.labels | default dict) (.values.commonLabels | default dict)) }}
{{- with $its.annotations }}{{ $_ := set $template.metadata "annotations" . }}{{ end }}
{{- $_ := set $container "resources" ($its.resources | default dict) }}
{{- with $its.args }}{{ $_ := set $container "args" (concat $container.args .) }}{{ end }}
{{- $env := $its.env | default list }}
{{- $set := dict }}
{{- range $env }}{{ $_ := set $set .name true }}{{ end }}
{{- range $container.env }}{{ if not (hasKey $set .name) }}{{ $env = append $env . }}{{ end }}{{ end }}
{{- with $env }}{{ $_ := set $container "env" . }}{{ end }}
{{- with $its.volumes }}{{ $_ := set $template.spec "volumes" (concat $template.spec.volumes .) }}{{ end }}
{{- with $its.volumeMounts }}{{ $_ := set $container "volumeMounts" (concat $container.volumeMounts .) }}{{ end }}
{{- $_ := mergeOverwrite $template.spec ($its.pod | default dict) }}
{{- end }}

{{- /* Changes whom a network policy admits: jobs, agents, and who reads metrics. */}}
{{- define "railwright.peers" }}
{{- $spec := .object.spec }}
{{- if eq .object.metadata.name "railwright-agents" }}
{{- $peers := list }}
{{- range .values.agent.nodeCidrs }}{{ $peers = append $peers (dict "ipBlock" (dict "cidr" .)) }}{{ end }}
{{- $_ := set (first $spec.ingress) "from" $peers }}
{{- else }}
{{- if eq .object.metadata.name "railwright-operator" }}
{{- $jobs := first $spec.ingress }}
{{- $_ := set $jobs "from" (concat $jobs.from (.values.networkPolicy.jobsFrom | default list)) }}
{{- end }}
{{- if .values.networkPolicy.metricsFrom }}
{{- $port := dict "protocol" "TCP" "port" "metrics" }}
{{- $rule := dict "from" .values.networkPolicy.metricsFrom "ports" (list $port) }}
{{- $_ := set $spec "ingress" (append $spec.ingress $rule) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The URL at which pods reach a process: name is its Deployment and that of its Service, and chart the
root of the template. */}}
{{- define "railwright.url" }}
{{- $names := dict "railwright-operator" "RAILWRIGHT_HEARTBEAT_URL" "railwright-controllers" "RAILWRIGHT_AGENTS_URL" }}
{{- $url := printf "https://%s.%s" .name .chart.Release.Namespace }}
{{- range (get .chart.Values (trimPrefix "railwright-" .name)).env | default list }}
{{- if eq .name (get $names $.name) }}{{ $url = required (printf "%s needs a value: the PodMonitors verify its host" .name) .value }}{{ end }}
{{- end }}
{{- $url }}
{{- end }}
