{{- /*
One object of the manifests, changed by the values; nothing if they leave it out.
The argument: chart, the root of the template, and text, the object in YAML.
*/}}
{{- define "railwright.object" }}
{{- $values := .chart.Values }}
{{- $tag := $values.images.tag | default .chart.Chart.AppVersion }}
{{- $image := printf "%s/${1}:%s" $values.images.registry $tag }}
{{- $text := replace "railwright-system" .chart.Release.Namespace .text }}
{{- $object := regexReplaceAll "example\\.com/(railwright-[a-z]+):[0-9.]+" $text $image | fromYaml }}
{{- with $object.Error }}{{ fail . }}{{ end }}
{{- $isPolicy := eq ($object.kind | default "") "NetworkPolicy" }}
{{- if and $object.kind (ne $object.kind "Namespace") (or $values.networkPolicy.enabled (not $isPolicy)) }}
{{- $labels := dict "app.kubernetes.io/name" "railwright" "app.kubernetes.io/instance" .chart.Release.Name "app.kubernetes.io/managed-by" .chart.Release.Service "app.kubernetes.io/version" .chart.Chart.AppVersion }}
{{- $_ := set $object.metadata "labels" (merge $labels ($object.metadata.labels | default dict)) }}
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

{{- /* Changes the replicas and the pods of a workload. */}}
{{- define "railwright.pods" }}
{{- $its := get .values (trimPrefix "railwright-" .object.metadata.name) }}
{{- $pod := .object.spec.template.spec }}
{{- with $its.replicas }}{{ $_ := set $.object.spec "replicas" . }}{{ end }}
{{- with .values.images.pullSecrets }}{{ $_ := set $pod "imagePullSecrets" . }}{{ end }}
{{- $_ := set (first $pod.containers) "resources" $its.resources }}
{{- range $field, $value := $its.pod }}{{ $_ := set $pod $field $value }}{{ end }}
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
{{- $_ := set $jobs "from" (concat $jobs.from .values.networkPolicy.jobsFrom) }}
{{- end }}
{{- if .values.networkPolicy.metricsFrom }}
{{- $port := dict "protocol" "TCP" "port" "probes" }}
{{- $rule := dict "from" .values.networkPolicy.metricsFrom "ports" (list $port) }}
{{- $_ := set $spec "ingress" (append $spec.ingress $rule) }}
{{- end }}
{{- end }}
{{- end }}
