/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The bypass around both proxies, for Services that ask for it: a map names the addresses. A pod that requires its proxy is
 * never bypassed. Peers of that pod exchange no plain text with it either: they use their own proxy.
 */
#pragma once

#include "choice.h"
#include "evaluate.h"
#include "rules.h"

enum bypass_flags {
	BYPASS_OUTBOUND = 1 << 0, /* clients that dial this address need no proxy */
	BYPASS_INBOUND = 1 << 1,  /* servers at this address need no proxy */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 17);
	__type(key, struct frontend_key);
	__type(value, u8);
} bypasses SEC(".maps");

/* Pods that require their proxy. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 15);
	__type(key, u64); /* the network namespace's cookie */
	__type(value, u8);
} proxy_required SEC(".maps");

static __always_inline u32 bypass_at(const struct frontend_key *key)
{
	u8 flags;

	return READ_ENTRY(&bypasses, key, &flags) ? flags : 0;
}

/* False for a pod that requires its proxy. Counts either outcome. */
static __always_inline bool may_bypass(u64 netns, u32 reason)
{
	if (is_in_table(&proxy_required, &netns)) {
		count(REASON_BYPASS_REFUSED);
		return false;
	}
	count(reason);
	return true;
}

/* Whether a connection that the client pod's rules would give to its proxy bypasses the proxy. */
VERIFIED_ONCE bool bypasses_outbound(const struct endpoint *to, u64 netns)
{
	struct frontend_key key = { .protocol = IPPROTO_TCP };
	u32 flags;

	if (!to)
		return false;
	key.address = to->address;
	key.port = to->port;
	flags = bypass_at(&key);
	if (!flags) {
		address_unspecify(&key.address);
		key.scope = SCOPE_NODE;
		flags = bypass_at(&key);
		if (flags && !is_node_address(&to->address, netns))
			flags = 0;
	}
	return flags & BYPASS_OUTBOUND && may_bypass(netns, REASON_BYPASSED_OUTBOUND);
}

/* Whether a connection that the server pod's rules would give to its proxy bypasses the proxy. */
VERIFIED_ONCE bool bypasses_inbound(const struct endpoint *at, u64 netns, const struct address *from)
{
	struct frontend_key key = { .protocol = IPPROTO_TCP };
	struct identity client = {};
	u32 *generation, zero = 0;

	if (!at || !from)
		return false;
	key.address = at->address;
	key.port = at->port;
	if (!(bypass_at(&key) & BYPASS_INBOUND))
		return false;
	generation = bpf_map_lookup_elem(&current, &zero);
	if (generation && identity_of(*generation, from, &client) && client.flags & REQUIRES_PROXY) {
		count(REASON_BYPASS_REFUSED); /* the client's proxy speaks to the server's proxy */
		return false;
	}
	return may_bypass(netns, REASON_BYPASSED_INBOUND);
}
