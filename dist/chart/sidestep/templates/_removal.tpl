{{/* The patch by which each node's pod takes everything out, and then does nothing until the DaemonSet is deleted. */}}
{{- define "sidestep.removal" -}}
spec:
  updateStrategy:
    type: RollingUpdate
    rollingUpdate: {maxUnavailable: 100%, maxSurge: 0}
  template:
    spec:
      $patch: replace
      {{- include "sidestep.pod" . | nindent 6 }}
      initContainers:
        - name: detach
          {{- include "sidestep.container" . | nindent 10 }}
          command: [/usr/bin/sidestep-agent, --detach, --pins={{ .Values.hostPaths.bpf }}/sidestep, --socket={{ .Values.hostPaths.run }}/agent.sock, --empty={{ .Values.hostPaths.run }}]
          securityContext: {{- include "sidestep.rights" (list "BPF" "NET_ADMIN" "PERFMON" "SYS_ADMIN" "SYS_PTRACE") | nindent 12 }}
          volumeMounts:
            - {name: bpf, mountPath: {{ .Values.hostPaths.bpf }}}
            - {name: netns, mountPath: /run/netns, mountPropagation: HostToContainer}
            - {name: run, mountPath: {{ .Values.hostPaths.run }}}
        {{- include "sidestep.cniUninstall" . | nindent 8 }}
        # Versions that pods still have stay until those pods end.
        - name: library-collect
          {{- include "sidestep.container" . | nindent 10 }}
          command: [/usr/bin/sidestep-nri, collect, --library=/host/library, --all, --if-possible]
          securityContext: {{- include "sidestep.rights" (list "SYS_PTRACE") | nindent 12 }}
          volumeMounts:
            - {name: library, mountPath: /host/library}
      containers:
        # Does nothing until the DaemonSet is deleted. Nobody connects to it. Every process of the node's network could hold an abstract
        # name that it knows before, and this container would never run.
        - name: removed
          {{- include "sidestep.container" . | nindent 10 }}
          command: [/usr/bin/sidestepd, --address=@sidestep-removed-$(POD_UID), --idle-exit=0]
          env:
            - name: POD_UID
              valueFrom: {fieldRef: {fieldPath: metadata.uid}}
          securityContext: {{- include "sidestep.rights" list | nindent 12 }}
      volumes: {{- include "sidestep.volumes" . | nindent 8 }}
        {{- include "sidestep.libraryVolume" . | nindent 8 }}
{{- end -}}
