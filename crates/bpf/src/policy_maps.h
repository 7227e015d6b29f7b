/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The maps of policy. */
#pragma once

#include "isolated.h"
#include "once.h"
#include "policy.h"
#include "stable_read.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 15);
	__type(key, u64); /* the network namespace's cookie */
	__type(value, struct policed);
} policed_pods SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 20);
	__type(key, struct rule_key);
	__type(value, u8);
} policy_rules SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 20);
	__type(key, struct rule_range_key);
	__type(value, u8);
} policy_ranges SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 19);
	__type(key, struct identity_key);
	__type(value, struct identity);
} identities SEC(".maps");

/* The newest generation of identities, for pods without policies: those have no generation of their own. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
} current SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 17);
	__type(key, struct own_key);
	__type(value, u8); /* enum address_kind */
} own_addresses SEC(".maps");

/* Conversations of one pod, so that a pod can evict only its own. User space sizes it for the processors. */
struct pod_conversations {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__uint(key_size, sizeof(struct conversation));
	__uint(value_size, sizeof(u64)); /* when it was last used */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 15);
	__type(key, u64); /* the network namespace's cookie */
	__array(values, struct pod_conversations);
} conversations SEC(".maps");

VERIFIED_ONCE u8 address_kind(u64 netns, const struct address *address)
{
	struct own_key key = { .netns = netns };
	u8 kind;

	if (!address)
		return ADDRESS_OF_OTHERS;
	key.address = *address;
	return READ_ENTRY(&own_addresses, &key, &kind) ? kind : ADDRESS_OF_OTHERS;
}

/* The identity that has the address; false if unknown. */
VERIFIED_ONCE bool identity_of(u32 generation, const struct address *address, struct identity *identity)
{
	struct identity_key key = { .generation = generation };

	if (!address || !identity)
		return false;
	key.address = *address;
	return READ_ENTRY(&identities, &key, identity);
}
