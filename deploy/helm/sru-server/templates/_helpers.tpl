{{- define "sru.name" -}}
{{- if contains "sru-server" .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-sru-server{{ end }}
{{- end }}

{{- define "sru.selector" -}}
app.kubernetes.io/name: sru-server
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "sru.metadata" -}}
name: {{ include "sru.name" . }}
labels:
  {{- include "sru.labels" . | nindent 2 }}
{{- end }}

{{- define "sru.labels" -}}
{{ include "sru.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- with .Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* A number of YAML arrives as a float: 8000000 must not become 8e+06. */}}
{{- define "sru.flag" -}}
{{- if and (kindIs "float64" .) (eq (float64 (int64 .)) .) }}{{ int64 . }}{{ else }}{{ . }}{{ end }}
{{- end }}

{{/* The query of the queue for Prometheus, in which KEDA names no pods. */}}
{{- define "sru.queueQuery" -}}
sum(avg_over_time(sru_queue_tokens{namespace="{{ .Release.Namespace }}",pod=~"{{ include "sru.name" . }}-.+"}[1m]))
{{- end }}
