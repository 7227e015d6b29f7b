/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The maps of the splice programs. Before loading, the command sets the number of sockets. */
#pragma once

#include "splice.h"

#define SOCKETS (1 << 17)

/* Sockets by cookie: the possible targets of redirection. */
struct {
	__uint(type, BPF_MAP_TYPE_SOCKHASH);
	__uint(max_entries, SOCKETS);
	__type(key, u64);
	__type(value, u64);
} sockets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, SOCKETS / 2);
	__type(key, struct pair_key);
	__type(value, struct pair);
} pairs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct end);
} ends SEC(".maps");

/* SYNs that local listeners have received, and the listener's obstacle. A connection whose entry is evicted is not spliced. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 14);
	__type(key, struct flow);
	__type(value, u32);
} announced SEC(".maps");

/*
 * For programs that translate addresses between the two ends: from the flow that the accepted socket sees to the flow that the
 * client's socket sees. Connections without translation need no entry.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 14);
	__type(key, struct flow);
	__type(value, struct flow);
} aliases SEC(".maps");

/* Opted-in server ports: bit `port % 64` of element `port / 64`. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 65536 / 64);
	__type(key, u32);
	__type(value, u64);
} ports SEC(".maps");

/* Cookies of the listed namespaces. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 12);
	__type(key, u64);
	__type(value, u8);
} namespaces SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct switches);
} settings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, REASONS);
	__type(key, u32);
	__type(value, u64);
} reasons SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct traffic);
} redirected SEC(".maps");

static __always_inline void count(u32 reason)
{
	u64 *counter = bpf_map_lookup_elem(&reasons, &reason);

	if (counter)
		*counter += 1;
}

static __always_inline void count_redirected(u32 bytes)
{
	u32 zero = 0;
	struct traffic *traffic = bpf_map_lookup_elem(&redirected, &zero);

	if (!traffic)
		return;
	traffic->messages += 1;
	traffic->bytes += bytes;
}

static __always_inline struct switches *get_switches(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&settings, &zero);
}
