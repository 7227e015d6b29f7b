/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* From a destination to a backend. */
#pragma once

#include "arming.h"
#include "once.h"
#include "stable_read.h"
#include "events.h"

/* How many backends are tried until one is not yet the peer of another socket with the same source port. */
#define TRIES 4

/* Whether NodePorts answer at this address, which is the node's. */
static __always_inline bool has_node_ports(const struct address *address)
{
	u8 kind = 0;

	return READ_ENTRY(&node_addresses, address, &kind) && kind == WITH_NODE_PORTS;
}

static __always_inline bool is_node_address(const struct address *address, u64 netns)
{
	if (address_is_v4_loopback(address))
		return netns == node_netns;
	return has_node_ports(address);
}

/* The Service that is reached at `to`; false if there is none. */
VERIFIED_ONCE bool find_frontend(const struct endpoint *to, u8 protocol, u64 netns, struct frontend *frontend)
{
	struct frontend_key key = { .protocol = protocol, .scope = SCOPE_ADDRESS };

	if (!to || !frontend)
		return false;
	key.address = to->address;
	key.port = to->port;

	if (READ_ENTRY(&frontends, &key, frontend))
		return true;
	address_unspecify(&key.address);
	key.scope = SCOPE_NODE;
	return READ_ENTRY(&frontends, &key, frontend) && is_node_address(&to->address, netns);
}

/* A random backend by weight. A list that is being freed yields nothing worse than an old backend. */
static __always_inline u32 choose_any(const struct frontend *frontend)
{
	u32 index = frontend->first + scale(bpf_get_prandom_u32(), frontend->count);
	struct slot *slot = bpf_map_lookup_elem(&slots, &index);

	return slot ? slot_choose(slot, bpf_get_prandom_u32()) : 0;
}

static __always_inline u64 active_of(u32 index)
{
	struct backend *backend = bpf_map_lookup_elem(&backends, &index);

	return backend ? backend->active : ~0ull;
}

static __always_inline u32 choose(const struct frontend *frontend)
{
	u32 one = choose_any(frontend), two;

	if (!(frontend->flags & LEAST_CONNECTIONS))
		return one;
	two = choose_any(frontend);
	return active_of(two) < active_of(one) ? two : one;
}

static __always_inline bool is_member(u32 service, u32 backend)
{
	struct member_key key = { .service = service, .backend = backend };

	return is_in_table(&members, &key);
}

/* The backend that an entry of affinity names, if it still serves this frontend and has not expired; else 0. */
static __always_inline u32 use_again(const struct frontend *frontend, struct remembered *last)
{
	u64 now = bpf_ktime_get_ns();

	if (!last || has_expired(now, last->used_ns, frontend->affinity_seconds) ||
	    !is_member(frontend->service, last->backend))
		return 0;
	last->used_ns = now;
	return last->backend;
}

/* The backend that this client used last under `service`. */
static __always_inline u32 remembered_under(u32 service, const struct frontend *frontend, u64 client)
{
	struct affinity_key key = { .client = client, .service = service };

	return use_again(frontend, bpf_map_lookup_elem(&affinities, &key));
}

static __always_inline void remember_affinity(const struct frontend *frontend, u64 client, u32 backend)
{
	struct affinity_key key = { .client = client, .service = frontend->service };
	struct remembered value = { .used_ns = bpf_ktime_get_ns(), .backend = backend };

	bpf_map_update_elem(&affinities, &key, &value, BPF_ANY);
}

/* The backend that this client used last: through this frontend, or through one of the same port with the other traffic policy. */
static __always_inline u32 choose_again(const struct frontend *frontend, u64 client)
{
	u32 backend = remembered_under(frontend->service, frontend, client);

	if (backend || !frontend->sibling)
		return backend;
	backend = remembered_under(frontend->sibling, frontend, client);
	if (backend)
		remember_affinity(frontend, client, backend);
	return backend;
}

static __always_inline void count_pick(const struct frontend *frontend, bool by_affinity)
{
	struct service_counters *counters = bpf_map_lookup_elem(&service_counters, &frontend->service);

	if (counters) {
		counters->picks += 1;
		counters->affinity_hits += by_affinity;
	}
}

/* The index of a backend; 0 if there is none. No backend has index 0. */
VERIFIED_ONCE u32 backend_for(const struct frontend *frontend, u64 client)
{
	u32 backend;

	if (!frontend)
		return 0;
	backend = frontend->affinity_seconds ? choose_again(frontend, client) : 0;
	count_pick(frontend, backend != 0);
	if (backend)
		return backend;
	backend = choose(frontend);
	if (backend && frontend->affinity_seconds)
		remember_affinity(frontend, client, backend);
	return backend;
}
