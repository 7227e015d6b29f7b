/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Armed nodes. On an armed node a network namespace may send and receive nothing until the agent has admitted it. The agent
 * admits a namespace once the namespace's rules are in force. Both tables are pinned, so an agent that stops or starts admits
 * no namespace by accident.
 */
#pragma once

#include <bpf/bpf_helpers.h>

#include "stable_read.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32); /* 1: armed */
} arming SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 15);
	__type(key, u64); /* the network namespace's cookie */
	__type(value, u8);
} admitted SEC(".maps");

/* The network namespace of the node's own programs, which is always admitted. By default it is the agent's namespace. */
const volatile u64 node_netns = 0;

static __always_inline bool is_armed(void)
{
	u32 zero = 0, *armed = bpf_map_lookup_elem(&arming, &zero);

	return armed && *armed;
}

static __always_inline bool is_admitted(u64 netns)
{
	return netns == node_netns || is_in_table(&admitted, &netns);
}
