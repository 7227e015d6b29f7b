/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Observation without a proxy: counts TCP connections that a Service, a policy or capture concerns, for each pair of identities
 * and each Service. A socket stores what has been counted of it. Its close counts the rest; for sockets that stay open the
 * agent's iterator does (watching.bpf.c).
 */
#pragma once

#include "policy_maps.h"
#include "rules.h"
#include "events.h"

enum side {
	SIDE_CLIENT, /* the end that dialled */
	SIDE_SERVER,
};

/* Client, server and Service, by number; 0: unknown, or no Service. */
struct relation_key {
	u32 client;
	u32 server;
	u32 service;
	u32 side; /* whose sockets were counted: a connection between two pods of one node is counted at both ends */
};

enum failure {
	FAILED_REFUSED,
	FAILED_RESET, /* reset after it was established */
	FAILED_TIMEOUT,
	FAILED_OTHERWISE, /* given up by the program, or unreachable */
	FAILURES,
};

/* Buckets of a histogram of microseconds: bucket i counts values below 2^i, the last one all others. */
#define LATENCIES 24

struct relation {
	u64 attempts; /* calls of connect(); connections accepted */
	u64 connections;
	u64 closed;
	u64 sent; /* bytes that the peer has acknowledged */
	u64 received;
	u64 rtt_us; /* sum of the kernel's smoothed RTT at each look ... */
	u64 rtts;   /* ... and number of looks */
	u64 failures[FAILURES];
	u64 latencies[LATENCIES]; /* of connect() */
};

/* In a socket's own storage. */
struct watched {
	struct relation_key key;
	u64 began_ns;
	u64 sent; /* bytes that have been counted */
	u64 received;
	u32 established;
	u32 pad;
};

/*
 * Shared by all processors, with atomic additions: a connection needs only a handful. A per-CPU map would need memory up front,
 * which is a high price while the switch is off, or could fail to allocate.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 16);
	__type(key, struct relation_key);
	__type(value, struct relation);
} relations SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct watched);
} watches SEC(".maps");

static const struct relation no_relation = {};

/* The counters for the key, created if necessary; NULL: no room, and the connection is not counted. */
static __always_inline struct relation *relation_of(const struct relation_key *key)
{
	struct relation *relation = bpf_map_lookup_elem(&relations, key);

	if (relation)
		return relation;
	bpf_map_update_elem(&relations, key, &no_relation, BPF_NOEXIST);
	relation = bpf_map_lookup_elem(&relations, key);
	if (!relation)
		count(REASON_NOT_WATCHED);
	return relation;
}

#define ADD(counter, amount) __sync_fetch_and_add(&(counter), amount)

/* Position of the highest set bit, counted from 1; 0 for 0. */
VERIFIED_ONCE u32 bits_of(u64 value)
{
	u32 bits = 0;

	for (u32 step = 32; step; step /= 2)
		if (value >> step) {
			value >>= step;
			bits += step;
		}
	return bits + (value != 0);
}

/* Adds the bytes since the last look at the socket. `srtt` is in eighths of a microsecond, as the kernel keeps it. */
static __always_inline void add_traffic(struct relation *relation, struct watched *watched, u64 sent, u64 received,
					u32 srtt)
{
	ADD(relation->sent, sent - watched->sent);
	ADD(relation->received, received - watched->received);
	watched->sent = sent;
	watched->received = received;
	if (srtt) {
		ADD(relation->rtt_us, srtt >> 3);
		ADD(relation->rtts, 1);
	}
}
