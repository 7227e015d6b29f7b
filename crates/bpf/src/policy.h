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
	NAMES_DENIED = 1 << 7, /* of defaults: some rule denies by who the other end is */
	DRY_NAMES_DENIED = 1 << 8,
};

struct policed {
	u32 policy;
	u32 generation; /* of the identities that its rules name */
	u32 defaults[2]; /* by direction */
};

/* Rules can name TCP and UDP. All other protocols are one, which has no ports. */
#define PROTOCOL_OTHER 0

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

struct own_key {
	u64 netns;
	struct address address;
};

/* What an address is in a pod's network namespace. */
enum address_kind {
	ADDRESS_OF_OTHERS, /* not in the table */
	ADDRESS_OWN,	   /* what is sent there never leaves the pod */
	ADDRESS_SHARED,	   /* many have it: a broadcast address */
	ADDRESS_KNOWN,	   /* of ::, which nobody has: all addresses of the namespace are in the table */
};

/* Datagrams between two sockets that rules allow in one direction: those of the other one are answers. */
struct conversation {
	struct endpoint peer;
	u16 port; /* host order, of the pod's own socket */
	u8 protocol;
	u8 opened; /* the direction that rules allow */
};

/* As long as conntrack keeps a stream of datagrams. */
#define CONVERSATION_SECONDS 120

/* Nobody can tell who is behind: a group, a broadcast, or an address that means another host at each link. */
static inline bool address_is_shared(const struct address *a)
{
	u32 first = __builtin_bswap32(a->word[0]), last = __builtin_bswap32(a->word[3]);

	if (address_is_v4(a))
		return last >> 28 == 0xe || last == 0xffffffff;
	return first >> 24 == 0xff || (first & 0xffc00000) == 0xfe800000;
}

static inline bool is_denied(u32 said, u32 defaults)
{
	if (said & SAYS_DENY)
		return true;
	return !(said & SAYS_ALLOW) && defaults & SAYS_DENY;
}

/* Whether one whom rules deny could be behind an address that is not one host's alone, and that no rule is about. */
static inline bool hides_denied(u32 said, u32 defaults)
{
	return defaults & NAMES_DENIED && !(said & SAYS_ALLOW);
}

/* Of a connection that is denied: whether without a word. */
static inline bool is_dropped(u32 said, u32 defaults)
{
	return (said & SAYS_DENY ? said : defaults) & SAYS_DROP;
}

static inline bool would_hide_denied(u32 said, u32 defaults)
{
	return defaults & DRY_NAMES_DENIED && !(said & (SAYS_ALLOW | DRY_ALLOW));
}

/* Of a connection that is allowed: whether it would be denied if all policies were in force. */
static inline bool would_be_denied(u32 said, u32 defaults)
{
	if (said & DRY_DENY)
		return true;
	return !(said & (SAYS_ALLOW | DRY_ALLOW)) && defaults & DRY_DENY;
}
