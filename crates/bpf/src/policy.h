/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Keys and values of policy's maps: with whom a pod may talk.
 *
 *   policed_pods  [network namespace]         -> {policy, generation, defaults of each direction}
 *                                                   |         |
 *   identities    {generation, address}  <----------|---------'   who has the address: a number for a set of labels
 *                      |                            |
 *   policy_rules  {policy, direction, identity or 0, protocol, port or 0}    -> what rules say
 *   policy_ranges {policy, direction, protocol, port or 0, prefix}           -> what rules say
 *
 * All entries that fit a connection are asked, the more specific ones first; what they say adds up, and a denial outweighs
 * everything. An entry for a range says what all ranges around it say, too, since only the longest prefix is found.
 *
 * A change writes the new rules under another number and then replaces the pod, which the kernel does atomically: a
 * connection meets the old rules or the new ones. crates/mesh/src/policy says the same in plain words.
 */
#pragma once

#include "address.h"

enum direction {
	EGRESS,
	INGRESS,
};

/* What rules say, and what a pod's defaults say; several at once. */
enum said {
	SAYS_ALLOW = 1 << 0,
	SAYS_DENY = 1 << 1,
	SAYS_DROP = 1 << 2, /* with SAYS_DENY: without a word */
	DRY_ALLOW = 1 << 3, /* the same of policies that only count */
	DRY_DENY = 1 << 4,
	JUDGED = 1 << 5,     /* of defaults: some policy is about this direction */
	HAS_RANGES = 1 << 6, /* of defaults: some rule is about ranges */
};

struct policed {
	u32 policy;
	u32 generation; /* of the identities that its rules name */
	u32 defaults[2]; /* by direction */
};

struct rule_key {
	u32 policy;
	u32 identity; /* 0: anybody */
	u16 port;     /* host order; 0: any */
	u8 protocol;
	u8 direction;
};

struct rule_range_key {
	u32 bits; /* that matter of what follows */
	u32 policy;
	u16 port;
	u8 protocol;
	u8 direction;
	struct address address;
};

#define RULE_RANGE_BITS (64 + 128)

struct identity_key {
	u32 generation;
	struct address address;
};

/* Of addresses that are nobody's we know of. */
#define IDENTITY_UNKNOWN 0
/* Of this node, whose probes are let in. */
#define IDENTITY_NODE 1

enum identity_flags {
	REQUIRES_PROXY = 1 << 0, /* its connections are never led around its proxy */
};

struct identity {
	u32 number;
	u32 flags;
};

/* An address of a pod's own: what is sent there never leaves it. */
struct own_key {
	u64 netns;
	struct address address;
};

/* Datagrams between two sockets, of which one direction was allowed: the other one is an answer. */
struct conversation {
	u64 netns;
	struct endpoint peer;
	u16 port; /* host order, of the pod's own socket */
	u16 pad;
};

/* As long as conntrack keeps a stream of datagrams. */
#define CONVERSATION_SECONDS 120

static inline bool is_denied(u32 said, u32 defaults)
{
	if (said & SAYS_DENY)
		return true;
	return !(said & SAYS_ALLOW) && defaults & SAYS_DENY;
}

/* Of a connection that is denied: whether without a word. */
static inline bool is_dropped(u32 said, u32 defaults)
{
	return (said & SAYS_DENY ? said : defaults) & SAYS_DROP;
}

/* Of a connection that is allowed: whether it would be denied if all policies were in force. */
static inline bool would_be_denied(u32 said, u32 defaults)
{
	if (said & DRY_DENY)
		return true;
	return !(said & (SAYS_ALLOW | DRY_ALLOW)) && defaults & DRY_DENY;
}
