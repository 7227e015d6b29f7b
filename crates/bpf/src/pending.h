/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Entries of `pending`. A socket has at most one. The entry goes when the proxy's end takes it, when the socket dials again, when
 * the connection ends before that, and when the socket is closed: no entry outlives its socket. The number for each pod is limited.
 */
#pragma once

#include "capture_maps.h"
#include "kernel.h"

static const struct usage no_usage = {};

/* The pod's usage, created if necessary; NULL: the table has no room for one more pod. */
static __always_inline struct usage *usage_of(u64 netns)
{
	struct usage *usage = bpf_map_lookup_elem(&usages, &netns);

	if (usage)
		return usage;
	bpf_map_update_elem(&usages, &netns, &no_usage, BPF_NOEXIST);
	return bpf_map_lookup_elem(&usages, &netns);
}

static __always_inline bool may_have_pending(u64 netns)
{
	struct usage *usage = usage_of(netns);

	return usage && usage->pending < MOST_PENDING;
}

/* Two sockets never have the same tuple at the same time, so an existing entry is a leftover of an earlier socket: replaced. */
static __always_inline bool insert_pending(const struct redirected_flow *flow, const struct endpoint *original, u64 owner)
{
	struct pending_entry entry = { .owner = owner, .since_ns = bpf_ktime_get_ns(), .original = *original };
	struct usage *usage = usage_of(flow->netns);

	if (!usage || usage->pending >= MOST_PENDING)
		return false;
	if (bpf_map_update_elem(&pending, flow, &entry, BPF_NOEXIST) == 0) {
		__sync_fetch_and_add(&usage->pending, 1);
		return true;
	}
	return bpf_map_update_elem(&pending, flow, &entry, BPF_EXIST) == 0;
}

/* If several processors remove the entry, exactly one succeeds and decrements the count. */
static __always_inline void remove_pending(const struct redirected_flow *flow)
{
	struct usage *usage;

	if (bpf_map_delete_elem(&pending, flow))
		return;
	usage = bpf_map_lookup_elem(&usages, &flow->netns);
	if (usage)
		__sync_fetch_and_add(&usage->pending, -1);
}

/* Removes this socket's entry, if nobody has taken it. */
static __always_inline void remove_own_pending(u64 netns, struct captured *captured)
{
	struct redirected_flow flow = { .netns = netns, .from = captured->from, .to = captured->proxy };
	struct pending_entry *entry;

	if (!captured->from.port)
		return;
	captured->from.port = 0;
	entry = bpf_map_lookup_elem(&pending, &flow);
	if (entry && entry->owner == captured->owner)
		remove_pending(&flow);
}
