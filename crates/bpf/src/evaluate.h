/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Evaluates a pod's policies for one connection or datagram, in either direction. */
#pragma once

#include "policy_maps.h"
#include "events.h"
#include "once.h"

/* What policies are evaluated for: the pod's end, and the other one. */
struct asked {
	u64 netns;
	struct endpoint peer;
	u32 identity; /* of the peer */
	u16 port;     /* that rules are about: the dialled one, in host order */
	u8 protocol;  /* as rules know it */
	u8 direction;
	bool is_shared; /* the peer's address may be several hosts' */
	u8 spoken;	/* the packet's own protocol, also where rules know it only as PROTOCOL_OTHER */
	u8 pad[2];
};

/*
 * Rules distinguish TCP, UDP and all other protocols; those others have no ports. Conversations distinguish all of them, or one
 * ping would let in every other protocol of the host that was pinged.
 */
static __always_inline void ask_by_protocol(struct asked *asked, u8 protocol)
{
	asked->protocol = asked->spoken = protocol;
	if (protocol == IPPROTO_TCP || protocol == IPPROTO_UDP)
		return;
	asked->protocol = PROTOCOL_OTHER;
	asked->port = asked->peer.port = 0;
}

/* Fills in the peer's identity. `kind` is the kind of the peer's address. */
static __always_inline void identify(struct asked *asked, const struct policed *pod, u8 kind)
{
	struct identity peer = {};

	if (identity_of(pod->generation, &asked->peer.address, &peer))
		asked->identity = peer.number;
	else
		asked->is_shared = kind == ADDRESS_SHARED || address_is_shared(&asked->peer.address);
}

static __always_inline u32 said_of(const struct rule_key *key)
{
	u8 *said = bpf_map_lookup_elem(&policy_rules, key);

	return said ? *said : 0;
}

/* What rules about this identity say; identity 0: rules about anybody. */
static __always_inline u32 said_of_identity(const struct policed *pod, const struct asked *asked, u32 identity)
{
	struct rule_key key = {
		.policy = pod->policy, .identity = identity, .port = asked->port, .protocol = asked->protocol,
		.direction = asked->direction,
	};
	u32 said = said_of(&key);

	key.port = 0;
	return said | said_of(&key);
}

static __always_inline u32 said_of_range(const struct policed *pod, const struct asked *asked, u16 port)
{
	struct rule_range_key key = {
		.bits = RULE_RANGE_BITS, .policy = pod->policy, .port = port, .protocol = asked->protocol,
		.direction = asked->direction, .address = asked->peer.address,
	};
	u8 *said = bpf_map_lookup_elem(&policy_ranges, &key);

	return said ? *said : 0;
}

static __always_inline u32 said_by_rules(const struct policed *pod, const struct asked *asked, u32 defaults)
{
	u32 said = asked->identity ? said_of_identity(pod, asked, asked->identity) : 0;

	said |= said_of_identity(pod, asked, 0);
	if (defaults & HAS_RANGES)
		said |= said_of_range(pod, asked, asked->port) | said_of_range(pod, asked, 0);
	return said;
}

/* The conversation that this datagram opens. */
static __always_inline struct conversation conversation_of(const struct asked *asked, u16 own_port)
{
	return (struct conversation){
		.peer = asked->peer, .port = own_port, .protocol = asked->spoken, .opened = asked->direction,
	};
}

/* Stores that a datagram was allowed, so that answers are allowed for a while. */
static __always_inline void keep_conversation(u64 netns, const struct conversation *key)
{
	void *its = bpf_map_lookup_elem(&conversations, &netns);
	u64 *used, now = bpf_ktime_get_ns();

	if (!its) {
		count(REASON_CONVERSATION_NOT_KEPT);
		return;
	}
	used = bpf_map_lookup_elem(its, key);
	if (used)
		*used = now;
	else
		bpf_map_update_elem(its, key, &now, BPF_ANY);
}

/* Whether the conversation exists and has not expired. If so, its time is renewed. */
static __always_inline bool is_conversation(u64 netns, const struct conversation *key)
{
	void *its = bpf_map_lookup_elem(&conversations, &netns);
	u64 *used = its ? bpf_map_lookup_elem(its, key) : NULL, now = bpf_ktime_get_ns();

	if (!used || has_expired(now, *used, CONVERSATION_SECONDS))
		return false;
	*used = now;
	return true;
}

/*
 * SAYS_DENY, with or without SAYS_DROP; DRY_DENY if only policies in dry run deny; 0 if allowed. Not inlined: the function is
 * called twice, and inlined its stack would be needed twice.
 */
VERIFIED_ONCE u32 verdict_of(const struct policed *pod, const struct asked *asked, u32 defaults)
{
	u32 said;

	if (!pod || !asked)
		return SAYS_DENY;
	if (!(defaults & ISOLATED))
		return 0;
	/* The node's probes keep the pod alive. */
	if (asked->direction == INGRESS && asked->identity == IDENTITY_NODE)
		return 0;
	said = said_by_rules(pod, asked, defaults);
	if (is_denied(said, defaults) || (asked->is_shared && hides_denied(said, defaults)))
		return SAYS_DENY | (is_dropped(said, defaults) ? SAYS_DROP : 0);
	if (would_be_denied(said, defaults) || (asked->is_shared && would_hide_denied(said, defaults)))
		return DRY_DENY;
	return 0;
}

/* Turns the question around, to datagrams that the other end sends in the same conversation. */
static __always_inline void turn_around(struct asked *asked, u16 own_port)
{
	asked->direction = asked->direction == INGRESS ? EGRESS : INGRESS;
	asked->port = asked->direction == INGRESS ? own_port : __builtin_bswap16(asked->peer.port);
}

/*
 * Whether a datagram that rules deny, or would deny, answers an allowed one. The rules of the other direction are evaluated
 * again, since they may have changed: once sending is denied, answers are denied as well and keep no conversation alive.
 */
static __always_inline bool is_answer(const struct policed *pod, struct asked *asked, u32 others, u16 own_port)
{
	struct conversation conversation;
	u16 port = asked->port;
	u32 verdict;

	turn_around(asked, own_port);
	conversation = conversation_of(asked, own_port);
	verdict = verdict_of(pod, asked, others);
	turn_around(asked, own_port);
	asked->port = port;
	return !(verdict & SAYS_DENY) && is_conversation(asked->netns, &conversation);
}

/* The verdict of `verdict_of`, except that an answer to an allowed datagram is allowed. */
VERIFIED_ONCE u32 evaluate(const struct policed *pod, struct asked *asked, u16 own_port)
{
	const volatile struct policed *its = pod;
	u32 out, into, defaults, others, verdict;
	bool is_datagram;

	if (!its || !asked)
		return SAYS_DENY;
	/* Both are read: indexing by a variable is pointer arithmetic for which the verifier demands CAP_PERFMON. */
	out = its->defaults[EGRESS];
	into = its->defaults[INGRESS];
	defaults = asked->direction == INGRESS ? into : out;
	others = asked->direction == INGRESS ? out : into;
	is_datagram = asked->protocol == IPPROTO_UDP ? own_port != 0 : asked->protocol == PROTOCOL_OTHER;
	verdict = verdict_of(pod, asked, defaults);
	if (verdict && is_datagram && is_answer(pod, asked, others, own_port))
		return 0;
	if (!(verdict & SAYS_DENY) && is_datagram && others & ISOLATED) {
		struct conversation conversation = conversation_of(asked, own_port);

		keep_conversation(asked->netns, &conversation);
	}
	return verdict;
}

static __always_inline u32 reason_of(u32 verdict, u8 direction)
{
	if (verdict & SAYS_DENY)
		return direction == INGRESS ? REASON_POLICY_DENIED_IN : REASON_POLICY_DENIED_OUT;
	return direction == INGRESS ? REASON_POLICY_WOULD_DENY_IN : REASON_POLICY_WOULD_DENY_OUT;
}

static __always_inline void emit_verdict(u32 verdict, const struct asked *asked, u32 pid)
{
	struct event facts = {
		.time_ns = bpf_ktime_get_ns(), .netns = asked->netns, .frontend = asked->peer,
		.reason = reason_of(verdict, asked->direction), .pid = pid,
		.protocol = asked->protocol, .direction = asked->direction, .identity = asked->identity,
	};

	/* Reports the dialled port. For incoming connections the client's own port means nothing. */
	facts.frontend.port = __builtin_bswap16(asked->port);
	emit(&facts);
}
