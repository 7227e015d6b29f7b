/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* From a packet to a backend. */
#pragma once

#include "arrival.h"
#include "choice.h"

/* Clients of this path are addresses, not pods, and strangers: a table of their own. */
struct external_client {
	struct address address;
	u32 service;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 16);
	__type(key, struct external_client);
	__type(value, struct remembered);
} external_affinities SEC(".maps");

static __always_inline bool is_pod_address(const struct address *address)
{
	struct network_key key = { .length = 128, .address = *address };

	return is_in_table(&pod_networks, &key);
}

static __always_inline bool may_use(const struct frontend *frontend, const struct address *address)
{
	struct source_key key = { .length = 32 + 128, .service = frontend->service, .address = *address };

	return !(frontend->flags & RESTRICTED) || is_in_table(&source_ranges, &key);
}

/* The frontend at the destination of `key`, or else at all addresses of the node, in these scopes. */
static __always_inline bool find_in(struct frontend_key *key, u8 scope, u8 scope_of_node, bool of_node,
				    struct frontend *frontend)
{
	struct address to = key->address;
	bool found;

	key->scope = scope;
	if (READ_ENTRY(&frontends, key, frontend))
		return true;
	if (!of_node)
		return false;
	address_unspecify(&key->address);
	key->scope = scope_of_node;
	found = READ_ENTRY(&frontends, key, frontend);
	key->address = to;
	return found;
}

/* As kube-proxy: external addresses and NodePorts first, then cluster IPs, which others than pods use masqueraded. */
VERIFIED_ONCE bool find_external(const struct arrival *arrival, struct frontend *frontend)
{
	struct frontend_key key = {};
	bool of_node;

	if (!arrival || !frontend)
		return false;
	key.address = arrival->to.address;
	key.port = arrival->to.port;
	key.protocol = arrival->protocol;
	of_node = has_node_ports(&arrival->to.address);
	if (find_in(&key, SCOPE_EXTERNAL, SCOPE_EXTERNAL_NODE, of_node, frontend)) {
		/* Packets that pods send may have a frontend of their own. A flag that only those of others have says so. */
		if (!(frontend->flags & MASQUERADE) && is_pod_address(&arrival->from.address))
			find_in(&key, SCOPE_POD, SCOPE_POD_NODE, of_node, frontend);
		return true;
	}
	key.scope = SCOPE_ADDRESS;
	if (!READ_ENTRY(&frontends, &key, frontend))
		return false;
	if (!is_pod_address(&arrival->from.address))
		frontend->flags |= MASQUERADE;
	return true;
}

/* The index of a backend; 0: none. */
VERIFIED_ONCE u32 external_backend(const struct frontend *frontend, const struct address *from)
{
	struct external_client client = {};
	struct remembered value = {};
	u32 backend = 0;

	if (!frontend || !from || !frontend->count)
		return 0;
	client.address = *from;
	client.service = frontend->service;
	if (frontend->affinity_seconds)
		backend = use_again(frontend, bpf_map_lookup_elem(&external_affinities, &client));
	if (backend) {
		count_pick(frontend, true);
		return backend;
	}
	/* As `choose_again`. */
	if (frontend->affinity_seconds && frontend->sibling) {
		client.service = frontend->sibling;
		backend = use_again(frontend, bpf_map_lookup_elem(&external_affinities, &client));
		client.service = frontend->service;
	}
	count_pick(frontend, backend != 0);
	if (!backend)
		backend = choose(frontend);
	value.used_ns = bpf_ktime_get_ns();
	value.backend = backend;
	if (backend && frontend->affinity_seconds)
		bpf_map_update_elem(&external_affinities, &client, &value, BPF_ANY);
	return backend;
}
