/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Keys and values of the policy maps, which say with whom a pod may communicate.
 *
 *   policed_pods  [network namespace]         -> {policy, generation, defaults of each direction}
 *                                                   |         |
 *   identities    {generation, address}  <----------|---------'   who has the address: a number for a set of labels
 *                      |                            |
 *   policy_rules  {policy, direction, identity or 0, protocol, port or 0}    -> what rules say
 *   policy_ranges {policy, direction, protocol, port or 0, prefix}           -> what rules say
 *
 * All entries that match a connection are looked up, the more specific ones first. Their bits are combined, and a denial
 * outweighs everything. An entry for a range includes the bits of all ranges around it, since a look-up finds only the longest
 * prefix.
 *
 * A change writes the new rules under a new number and then exchanges the pod's entry (stable_read.h): a connection meets either
 * the old rules or the new ones. crates/mesh/src/policy is the model of this file.
 */
#pragma once

#include "address.h"

enum direction {
	EGRESS,
	INGRESS,
};

/* What rules say, and what a pod's defaults say; several bits at once. */
enum said {
	SAYS_ALLOW = 1 << 0,
	SAYS_DENY = 1 << 1,
	SAYS_DROP = 1 << 2, /* with SAYS_DENY: silently, instead of a refusal */
	DRY_ALLOW = 1 << 3, /* the same for policies in dry run */
	DRY_DENY = 1 << 4,
	ISOLATED = 1 << 5,     /* in defaults: some policy is about this direction */
	HAS_RANGES = 1 << 6, /* in defaults: some rule is about ranges */
	NAMES_DENIED = 1 << 7, /* in defaults: some rule denies by the peer's identity */
	DRY_NAMES_DENIED = 1 << 8,
};

struct policed {
	u32 policy;
	u32 generation; /* of the identities that its rules name */
	u32 defaults[2]; /* by direction */
};

/* Rules can name TCP and UDP. All other protocols count as one, without ports. */
#define PROTOCOL_OTHER 0

struct rule_key {
	u32 policy;
	u32 identity; /* 0: anybody */
	u16 port;     /* host order; 0: any */
	u8 protocol;
	u8 direction;
};

struct rule_range_key {
	u32 bits; /* prefix length: how many of the following bits matter */
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

/* The identity of unknown addresses. */
#define IDENTITY_UNKNOWN 0
/* The identity of this node, whose probes are allowed. */
#define IDENTITY_NODE 1

enum identity_flags {
	REQUIRES_PROXY = 1 << 0, /* its connections never bypass its proxy */
};

struct identity {
	u32 number;
	u32 flags;
};

struct own_key {
	u64 netns;
	struct address address;
};

/* The role of an address in a pod's network namespace. */
enum address_kind {
	ADDRESS_OF_OTHERS, /* not in the table */
	ADDRESS_OWN,	   /* packets to it never leave the pod */
	ADDRESS_SHARED,	   /* many hosts have it: a broadcast address */
	ADDRESS_KNOWN,	   /* only of ::, as a mark: the table holds all addresses of the namespace */
};

/* An exchange of datagrams between two sockets that rules allow in one direction: the other direction's are answers. */
struct conversation {
	struct endpoint peer;
	u16 port; /* host order, of the pod's own socket */
	u8 protocol; /* the packets' own, never PROTOCOL_OTHER in its place */
	u8 opened; /* the direction that rules allow */
};

/* conntrack's timeout for a stream of datagrams. */
#define CONVERSATION_SECONDS 120

/* Whether several hosts may be behind the address: multicast, broadcast, or link-local, which differs on each link. */
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

/* Whether a denied peer could be behind a shared address for which no rule exists. */
static inline bool hides_denied(u32 said, u32 defaults)
{
	return defaults & NAMES_DENIED && !(said & SAYS_ALLOW);
}

/* For a denied connection: whether it is dropped silently. */
static inline bool is_dropped(u32 said, u32 defaults)
{
	return (said & SAYS_DENY ? said : defaults) & SAYS_DROP;
}

static inline bool would_hide_denied(u32 said, u32 defaults)
{
	return defaults & DRY_NAMES_DENIED && !(said & (SAYS_ALLOW | DRY_ALLOW));
}

/* For an allowed connection: whether it would be denied if policies in dry run were in force. */
static inline bool would_be_denied(u32 said, u32 defaults)
{
	if (said & DRY_DENY)
		return true;
	return !(said & (SAYS_ALLOW | DRY_ALLOW)) && defaults & DRY_DENY;
}
