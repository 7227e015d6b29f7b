/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Look-ups in a pod's capture rules, for both directions. */
#pragma once

#include "capture_maps.h"
#include "once.h"
#include "stable_read.h"

#define LOOPBACK_INTERFACE 1

/* The pod with this namespace. False: it has no rules. */
VERIFIED_ONCE bool read_pod(u64 netns, struct pod *pod)
{
	return pod && READ_ENTRY(&pods, &netns, pod);
}

/* The captured pod with this namespace; false if there is none, or it is inert. */
static __always_inline bool captured_pod(u64 netns, struct pod *pod)
{
	return read_pod(netns, pod) && !(pod->flags & POD_INERT);
}

static __always_inline bool in_set(u32 owner, u32 kind, u32 number)
{
	struct set_key key = { .owner = owner, .kind = kind, .number = number };

	return bpf_map_lookup_elem(&sets, &key) != NULL;
}

static __always_inline struct route *find_range(u32 owner, u32 kind, const struct address *address)
{
	struct range_key key = { .bits = RANGE_BITS, .owner = owner, .kind = kind, .address = *address };

	if (address_is_v4(address))
		key.kind += RANGE_OF_V4;
	return bpf_map_lookup_elem(&ranges, &key);
}

/* 127.0.0.1 alone, or ::1. */
static __always_inline bool is_loopback_host(const struct address *a)
{
	if (address_is_v4(a))
		return a->word[3] == __builtin_bswap32(0x7f000001);
	return address_is_v6_loopback(a);
}

/* Whether incoming connections to this port are captured. */
static __always_inline bool is_captured_port(const struct pod *pod, u32 port)
{
	bool all_but = pod->flags & POD_INBOUND_ALL_BUT;

	return port != pod->tunnel_port && in_set(pod->rules, KIND_INBOUND_PORT, port) != all_but;
}

static __always_inline bool is_included(const struct pod *pod, const struct address *address)
{
	return pod->flags & POD_ALL_RANGES || find_range(pod->rules, KIND_INCLUDED_RANGE, address);
}
