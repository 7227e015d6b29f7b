/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Observation without a proxy: TCP connections that a Service, a policy or capture concerns, counted for each pair of
 * identities and each Service. A socket carries what of it has been counted; its close counts the rest, and so does the
 * agent's iterator (watching.bpf.c) for those that last.
 */
#pragma once

#include "policy_maps.h"
#include "rules.h"
#include "events.h"

enum side {
	SIDE_CLIENT, /* it has dialled */
	SIDE_SERVER,
};

/* Between whom, by their numbers; 0: nobody we know of, no Service. */
struct relation_key {
	u32 client;
	u32 server;
	u32 service;
	u32 side; /* whose sockets these are: two pods of one node count each connection at both ends */
};

enum failure {
	FAILED_REFUSED,
	FAILED_RESET, /* after it had come to be */
	FAILED_TIMEOUT,
	FAILED_OTHERWISE, /* given up by the program, or unreachable */
	FAILURES,
};

/* Of microseconds: place i is for less than 2^i, the last one for all the rest. */
#define LATENCIES 24

struct relation {
	u64 attempts; /* calls of connect(); connections accepted */
	u64 connections;
	u64 closed;
	u64 sent; /* bytes, as the peer has acknowledged them */
	u64 received;
	u64 rtt_us; /* the sum of what the kernel had smoothed when it was looked at ... */
	u64 rtts;   /* ... so many times */
	u64 failures[FAILURES];
	u64 latencies[LATENCIES]; /* of connect() */
};

/* In a socket's own storage. */
struct watched {
	struct relation_key key;
	u64 began_ns;
	u64 sent; /* of which has been counted */
	u64 received;
	u32 established;
	u32 pad;
};

/*
 * Shared by all processors, and counted by atomic additions, of which a connection needs a handful: memory for each processor
 * would have to be had beforehand, in a quantity that nobody wants to pay for a switch that is off, or can fail to come.
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

/* NULL: there is no room, and the connection is not counted. */
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

/* 0 for 0, else the number of the highest bit and one more. */
static inline u32 bits_of(u64 value)
{
	u32 bits = 0;

	for (u32 step = 32; step; step /= 2)
		if (value >> step) {
			value >>= step;
			bits += step;
		}
	return bits + (value != 0);
}

/* What has come and gone since the socket was last looked at. The kernel smooths in eighths of a microsecond. */
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
