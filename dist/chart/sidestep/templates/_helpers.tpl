{{- define "sidestep.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "sidestep.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains (include "sidestep.name" .) .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "sidestep.name" .) | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "sidestep.selector" -}}
app.kubernetes.io/name: {{ include "sidestep.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "sidestep.labels" -}}
{{ include "sidestep.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "sidestep.account" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "sidestep.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "sidestep.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{/* What all containers have in common. */}}
{{- define "sidestep.container" -}}
image: {{ include "sidestep.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end -}}

{{/* A container's rights: these capabilities and nothing else. */}}
{{- define "sidestep.rights" -}}
runAsUser: 0
runAsGroup: 0
privileged: false
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
  {{- with . }}
  add: {{ toJson . }}
  {{- end }}
{{- end -}}

{{/* What gives containers the library: "nri", "webhook", or nothing. */}}
{{- define "sidestep.injection" -}}
{{- if eq .Values.injection "webhook" -}}webhook{{- else if .Values.nri.enabled -}}nri{{- end -}}
{{- end -}}

{{- define "sidestep.webhookName" -}}
{{- printf "%s-webhook" (include "sidestep.fullname" . | trunc 55 | trimSuffix "-") -}}
{{- end -}}

{{/* Whether the certificate of the Secret `present` stays at the time `now`: in the first half of the days for which it was made, or of
`days`, if these are fewer. If nobody knows for how many it was made, it does not. */}}
{{- define "sidestep.certificateKept" -}}
{{- $notes := dig "metadata" "annotations" dict .present | default dict -}}
{{- $made := get $notes "sidestep.dev/made" | int64 -}}
{{- $days := min .days (get $notes "sidestep.dev/days" | int64) -}}
{{- if gt (add $made (mul $days 43200)) .now -}}yes{{- end -}}
{{- end -}}

{{/* Other labels than those of the DaemonSet's pods. */}}
{{- define "sidestep.webhookSelector" -}}
app.kubernetes.io/name: {{ include "sidestep.name" . }}-webhook
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Whether the agent has to know pods. */}}
{{- define "sidestep.asksPods" -}}
{{- if or .Values.agent.documents .Values.agent.networkPolicies .Values.cni.enabled -}}yes{{- end -}}
{{- end -}}

{{/* Whether it has to know namespaces: their labels count for policies and for rings. */}}
{{- define "sidestep.asksNamespaces" -}}
{{- if or (eq (include "sidestep.injection" .) "nri") (include "sidestep.asksPods" .) -}}yes{{- end -}}
{{- end -}}

{{- define "sidestep.metricsAddress" -}}
{{- default "$(HOST_IP)" .Values.metrics.address -}}
{{- end -}}
