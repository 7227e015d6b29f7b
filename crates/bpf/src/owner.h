/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The owner of a socket: the user and group that created it, as the owner match of iptables defines it. */
#pragma once

#include <bpf/bpf_core_read.h>

#include "kernel.h"
#include "rules.h"

#define NOBODY (~0u) /* owner of a socket without a file */

struct owner {
	u32 uid, gid;
};

/* Call only if `may_read_kernel`. */
static __always_inline struct owner owner_of(struct sock *sock)
{
	struct owner owner = { .uid = NOBODY, .gid = NOBODY };
	struct file *file = BPF_CORE_READ(sock, sk_socket, file);
	const struct cred *cred;

	if (!file)
		return owner;
	cred = BPF_CORE_READ(file, f_cred);
	owner.uid = BPF_CORE_READ(cred, fsuid.val);
	owner.gid = BPF_CORE_READ(cred, fsgid.val);
	return owner;
}

static __always_inline bool is_proxys(const struct pod *pod, struct owner owner)
{
	return in_set(pod->rules, KIND_UID, owner.uid) || in_set(pod->rules, KIND_GID, owner.gid);
}

/* Whether a listener at the proxy's port is the proxy. If the rules name users or groups of the proxy, it must have one of them. */
static __always_inline bool is_proxys_listener(const struct pod *pod, struct sock *sock)
{
	return !(pod->flags & (POD_HAS_UIDS | POD_HAS_GIDS)) || is_proxys(pod, owner_of(sock));
}
