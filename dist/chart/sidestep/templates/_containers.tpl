{{- define "sidestep.agent" -}}
- name: agent
  {{- include "sidestep.container" . | nindent 2 }}
  command:
    - /usr/bin/sidestep-agent
    - --in-cluster
    - --node-name=$(NODE_NAME)
    - --cgroup=/host/cgroup
    - --pins={{ .Values.hostPaths.bpf }}/sidestep
    - --socket={{ .Values.hostPaths.run }}/agent.sock
    - --metrics={{ include "sidestep.metricsAddress" . }}:{{ .Values.metrics.port }}
    - --log-format={{ .Values.logFormat }}
    {{- if .Values.agent.documents }}
    - --captures=/etc/sidestep/captures
    {{- end }}
    {{- if .Values.cni.enabled }}
    - --admissions={{ .Values.hostPaths.run }}/admissions
    - --host-netns={{ .Values.hostPaths.netns }}
    {{- end }}
    {{- if and .Values.cni.enabled .Values.cni.repair }}
    - --repair={{ .Values.cni.repair }}
    {{- end }}
    {{- if .Values.agent.removeTaint }}
    - --remove-taint
    {{- end }}
    {{- if eq (include "sidestep.injection" .) "nri" }}
    - --rings-namespaces={{ .Values.hostPaths.run }}/rings/namespaces
    - --rings-events={{ .Values.hostPaths.run }}/rings/events
    {{- end }}
    {{- if .Values.agent.networkPolicies }}
    - --network-policies
    {{- end }}
    {{- if .Values.agent.watch }}
    - --watch
    {{- end }}
    {{- if .Values.agent.arm }}
    - --arm
    {{- end }}
    {{- with .Values.agent.exempt }}
    - --exempt={{ join "," . }}
    {{- end }}
    {{- if not .Values.services.enabled }}
    - --no-services
    {{- end }}
    {{- with .Values.agent.nodePortAddresses }}
    - --node-port-addresses={{ join "," . }}
    {{- end }}
    {{- if .Values.services.replaceKubeProxy }}
    {{- $_ := required "services.replaceKubeProxy needs agent.apiServer.host: without kube-proxy no Service leads to the API server before the agent has read it there" .Values.agent.apiServer.host }}
    - --replace-kube-proxy
    {{- with .Values.services.clusterCIDR }}
    - --cluster-cidr={{ join "," . }}
    {{- end }}
    {{- end }}
    {{- range .Values.agent.extraArgs }}
    - {{ . | quote }}
    {{- end }}
  env:
    - name: NODE_NAME
      valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
    - name: HOST_IP
      valueFrom: {fieldRef: {fieldPath: status.hostIP}}
    - name: RUST_LOG
      value: {{ .Values.agent.log | quote }}
    {{- with .Values.agent.apiServer.host }}
    - name: KUBERNETES_SERVICE_HOST
      value: {{ . | quote }}
    - name: KUBERNETES_SERVICE_PORT
      value: {{ $.Values.agent.apiServer.port | quote }}
    {{- end }}
  ports:
    - {name: metrics, containerPort: {{ .Values.metrics.port }}, hostPort: {{ .Values.metrics.port }}}
  # A busy node answers late: that is no reason to start anything again.
  livenessProbe:
    httpGet: {path: /healthz, port: metrics{{ include "sidestep.probeHost" . }}}
    periodSeconds: 10
    timeoutSeconds: 5
    failureThreshold: 6
  readinessProbe:
    httpGet: {path: /readyz, port: metrics{{ include "sidestep.probeHost" . }}}
    periodSeconds: 5
    timeoutSeconds: 5
  # Those of sidestep-agent.service; sidestep-agent(8) says what each is for.
  securityContext: {{- include "sidestep.rights" (list "BPF" "NET_ADMIN" "NET_BROADCAST" "PERFMON" "SYS_ADMIN" "SYS_PTRACE") | nindent 4 }}
  resources: {{- toYaml .Values.agent.resources | nindent 4 }}
  volumeMounts:
    - {name: bpf, mountPath: {{ .Values.hostPaths.bpf }}}
    - {name: cgroup, mountPath: /host/cgroup, readOnly: true}
    # Names that the runtime makes later have to appear here.
    - {name: netns, mountPath: /run/netns, mountPropagation: HostToContainer}
    - {name: run, mountPath: {{ .Values.hostPaths.run }}}
    {{- if .Values.agent.documents }}
    - {name: documents, mountPath: /etc/sidestep/captures, readOnly: true}
    {{- end }}
{{- end -}}

{{/* An address of its own is where the kubelet has to ask. */}}
{{- define "sidestep.probeHost" -}}
{{- if and .Values.metrics.address (not (has .Values.metrics.address (list "0.0.0.0" "[::]"))) -}}
, host: {{ trimAll "[]" .Values.metrics.address | quote }}
{{- end -}}
{{- end -}}

{{- define "sidestep.broker" -}}
- name: broker
  {{- include "sidestep.container" . | nindent 2 }}
  command:
    - /usr/bin/sidestepd
    - --address={{ .Values.hostPaths.run }}/member/broker
    - --config=/etc/sidestep/config.toml
    - --idle-exit=0
    - --log-format={{ .Values.logFormat }}
    # A container's own cgroup namespace hides in which pod a process is.
    - --host-cgroups
    {{- range .Values.broker.extraArgs }}
    - {{ . | quote }}
    {{- end }}
  # SYS_PTRACE as in sidestepd.service. Pods have network namespaces of their own: NET_ADMIN to find that of a socket, SYS_ADMIN for
  # the threads that enter it, for --host-cgroups, and in place of SYS_RESOURCE; else it is lowered.
  securityContext: {{- include "sidestep.rights" (list "SYS_PTRACE" "NET_ADMIN" "SYS_ADMIN") | nindent 4 }}
  resources: {{- toYaml .Values.broker.resources | nindent 4 }}
  volumeMounts:
    - {name: member, mountPath: {{ .Values.hostPaths.run }}/member}
    - {name: operator, mountPath: /run/sidestep-operator}
    - {name: broker-config, mountPath: /etc/sidestep, readOnly: true}
{{- end -}}

{{- define "sidestep.nri" -}}
- name: nri
  {{- include "sidestep.container" . | nindent 2 }}
  command:
    - /usr/bin/sidestep-nri
    - run
    - --socket={{ .Values.hostPaths.nri }}/nri.sock
    - --library={{ .Values.hostPaths.library }}
    - --member={{ .Values.hostPaths.run }}/member
    - --metrics={{ include "sidestep.metricsAddress" . }}:{{ .Values.metrics.nriPort }}
    - --namespaces-file={{ .Values.hostPaths.run }}/rings/namespaces
    - --events={{ .Values.hostPaths.run }}/rings/events
    {{- with .Values.nri.namespaces }}
    - --namespaces={{ join "," . }}
    {{- end }}
    {{- range .Values.nri.extraArgs }}
    - {{ . | quote }}
    {{- end }}
  env:
    - name: HOST_IP
      valueFrom: {fieldRef: {fieldPath: status.hostIP}}
  ports:
    - {name: nri-metrics, containerPort: {{ .Values.metrics.nriPort }}, hostPort: {{ .Values.metrics.nriPort }}}
  livenessProbe:
    httpGet: {path: /healthz, port: nri-metrics{{ include "sidestep.probeHost" . }}}
    periodSeconds: 10
    timeoutSeconds: 5
    failureThreshold: 6
  # It looks at entrypoints by /proc/PID/root, whoever owns the files.
  securityContext: {{- include "sidestep.rights" (list "DAC_READ_SEARCH" "SYS_PTRACE") | nindent 4 }}
  resources: {{- toYaml .Values.nri.resources | nindent 4 }}
  volumeMounts:
    - {name: nri, mountPath: {{ .Values.hostPaths.nri }}}
    - {name: library, mountPath: {{ .Values.hostPaths.library }}, readOnly: true}
    # Whether a broker was ever started.
    - {name: member, mountPath: {{ .Values.hostPaths.run }}/member, readOnly: true}
    # Names of namespaces from the agent, and for the agent what becomes of containers.
    - {name: rings, mountPath: {{ .Values.hostPaths.run }}/rings}
{{- end -}}

{{/* The broker's metrics. It asks by the operator's socket, which root may, and has no capability. */}}
{{- define "sidestep.rings" -}}
- name: rings
  {{- include "sidestep.container" . | nindent 2 }}
  command:
    - /usr/bin/sidestep
    - status
    - --metrics
    - --address={{ .Values.hostPaths.run }}/member/broker
    - --serve={{ include "sidestep.metricsAddress" . }}:{{ .Values.metrics.ringsPort }}
  env:
    - name: HOST_IP
      valueFrom: {fieldRef: {fieldPath: status.hostIP}}
  ports:
    - {name: rings-metrics, containerPort: {{ .Values.metrics.ringsPort }}, hostPort: {{ .Values.metrics.ringsPort }}}
  livenessProbe:
    httpGet: {path: /healthz, port: rings-metrics{{ include "sidestep.probeHost" . }}}
    periodSeconds: 10
    timeoutSeconds: 5
    failureThreshold: 6
  # The broker answers.
  readinessProbe:
    httpGet: {path: /metrics, port: rings-metrics{{ include "sidestep.probeHost" . }}}
    periodSeconds: 10
    timeoutSeconds: 5
  securityContext: {{- include "sidestep.rights" list | nindent 4 }}
  resources: {{- toYaml .Values.metrics.ringsResources | nindent 4 }}
  volumeMounts:
    - {name: member, mountPath: {{ .Values.hostPaths.run }}/member}
    - {name: operator, mountPath: /run/sidestep-operator}
{{- end -}}
