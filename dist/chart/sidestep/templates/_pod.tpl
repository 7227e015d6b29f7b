{{/* A pod of the node itself: its network and its processes. */}}
{{- define "sidestep.pod" -}}
serviceAccountName: {{ include "sidestep.account" . }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
# NodePorts answer at the addresses of the agent's own network namespace.
hostNetwork: true
dnsPolicy: ClusterFirstWithHostNet
# Agent and broker look up processes of pods: their namespaces and cgroups.
hostPID: true
priorityClassName: {{ .Values.priorityClassName }}
terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
securityContext:
  seccompProfile: {type: RuntimeDefault}
  appArmorProfile: {type: {{ .Values.appArmorProfile }}}
nodeSelector: {{- toYaml .Values.nodeSelector | nindent 2 }}
tolerations: {{- toYaml .Values.tolerations | nindent 2 }}
{{- with .Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "sidestep.volumes" -}}
- name: bpf
  hostPath: {path: {{ .Values.hostPaths.bpf }}, type: Directory}
- name: cgroup
  hostPath: {path: {{ .Values.hostPaths.cgroup }}, type: Directory}
- name: netns
  hostPath: {path: {{ .Values.hostPaths.netns }}, type: DirectoryOrCreate}
- name: run
  hostPath: {path: {{ .Values.hostPaths.run }}, type: DirectoryOrCreate}
- name: member
  hostPath: {path: {{ .Values.hostPaths.run }}/member, type: DirectoryOrCreate}
- name: operator
  hostPath: {path: {{ .Values.hostPaths.operator }}, type: DirectoryOrCreate}
{{- if eq (include "sidestep.injection" .) "nri" }}
- name: nri
  hostPath: {path: {{ .Values.hostPaths.nri }}, type: Directory}
- name: rings
  hostPath: {path: {{ .Values.hostPaths.run }}/rings, type: DirectoryOrCreate}
{{- end }}
- name: cni-bin
  hostPath: {path: {{ .Values.hostPaths.cniBin }}, type: DirectoryOrCreate}
- name: cni-conf
  hostPath: {path: {{ .Values.hostPaths.cniConf }}, type: DirectoryOrCreate}
{{- end -}}

{{- define "sidestep.libraryVolume" -}}
- name: library
  hostPath: {path: {{ .Values.hostPaths.library }}, type: DirectoryOrCreate}
{{- end -}}

{{/* Whether or not this release has the plugin: the one before it may have had. */}}
{{- define "sidestep.cniUninstall" -}}
- name: cni-uninstall
  {{- include "sidestep.container" . | nindent 2 }}
  command: {{- include "sidestep.cni" (list . "uninstall") | nindent 4 }}
  securityContext: {{- include "sidestep.cniRights" . | nindent 4 }}
  resources: {{- toYaml .Values.cni.resources | nindent 4 }}
  volumeMounts: {{- include "sidestep.cniMounts" . | nindent 4 }}
{{- end -}}

{{/* The runtime's directories, and the files there, may be another user's, as those of kubespray are. */}}
{{- define "sidestep.cniRights" -}}
{{- include "sidestep.rights" (list "CHOWN" "DAC_OVERRIDE") -}}
{{- end -}}

{{- define "sidestep.cniMounts" -}}
- {name: cni-bin, mountPath: /host/cni-bin}
- {name: cni-conf, mountPath: /host/cni-conf}
{{- end -}}

{{/* (list CONTEXT WORDS...) */}}
{{- define "sidestep.cni" -}}
- /usr/bin/sidestep-cni
{{- range rest . }}
- {{ . }}
{{- end }}
- --bin-dir=/host/cni-bin
- --conf-dir=/host/cni-conf
{{- if ne (index . 1) "uninstall" }}
- --socket={{ (first .).Values.hostPaths.run }}/agent.sock
{{- range (first .).Values.cni.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end }}
{{- end -}}
