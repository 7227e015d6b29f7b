// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Finds proxies that were listening before their pod was captured. This iterator walks the TCP sockets of one network namespace
 * and puts the listeners at the proxy's ports into the map from which inbound connections are served.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "capture_maps.h"
#include "owner.h"
#include "stable_read.h"

#define TCP_LISTEN 10

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* How many were found; user space reads it after a run. */
u64 found = 0;

static __always_inline bool keep(struct sock_common *common, struct listener_key *key)
{
	for (u32 i = 0; i < LISTENER_PLACES; i++) {
		key->place = i;
		if (bpf_map_update_elem(&listeners, key, common, BPF_NOEXIST) == 0)
			return true;
	}
	return false;
}

SEC("iter/tcp")
int find_listeners(struct bpf_iter__tcp *ctx)
{
	struct sock_common *common = ctx->sk_common;
	struct listener_key key = {};
	struct pod pod = {};
	u16 port;

	if (!common || common->skc_state != TCP_LISTEN)
		return 0;
	key.netns = common->skc_net.net->net_cookie;
	if (!read_pod(key.netns, &pod))
		return 0;
	port = common->skc_num;
	if (port != pod.outbound_port && port != pod.inbound_port)
		return 0;
	if (!is_proxys_listener(&pod, (struct sock *)common))
		return 0;
	key.role = port == pod.inbound_port ? ROLE_INBOUND : ROLE_OUTBOUND;
	found += keep(common, &key);
	return 0;
}
