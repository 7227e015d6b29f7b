/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What a pod's policies say of a connection, whatever its direction. */
#pragma once

#include "policy_maps.h"
#include "events.h"

/* The pod's end and the other one. */
struct asked {
	u64 netns;
	struct endpoint peer;
	u32 identity; /* of the peer */
	u16 port;     /* that the rules are about: the one that was dialled, in host order */
	u8 protocol;
	u8 direction;
	bool is_shared; /* the peer's address is not one host's alone */
};

/* Rules are asked by this; ports are those of TCP and UDP only. */
static __always_inline void ask_by_protocol(struct asked *asked, u8 protocol)
{
	asked->protocol = protocol;
	if (protocol == IPPROTO_TCP || protocol == IPPROTO_UDP)
		return;
	asked->protocol = PROTOCOL_OTHER;
	asked->port = asked->peer.port = 0;
}

/* Who the peer is, whose address is of this kind. */
static __always_inline void identify(struct asked *asked, const struct policed *pod, u8 kind)
{
	struct identity peer;

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

/* Rules about this identity, or about anybody. */
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

/* The one that this datagram opens. */
static __always_inline struct conversation conversation_of(const struct asked *asked, u16 own_port)
{
	return (struct conversation){
		.peer = asked->peer, .port = own_port, .protocol = asked->protocol, .opened = asked->direction,
	};
}

/* A datagram was allowed: for a while its answers are. */
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

/* Whether it is one of a conversation, which goes on with it. */
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
 * SAYS_DENY, with or without SAYS_DROP; DRY_DENY for what would be denied; 0. A function of its own: its stack is needed twice,
 * but not at once.
 */
static __noinline u32 verdict_of(const struct policed *pod, const struct asked *asked, u32 defaults)
{
	u32 said;

	if (!(defaults & JUDGED))
		return 0;
	said = said_by_rules(pod, asked, defaults);
	if (is_denied(said, defaults) || (asked->is_shared && hides_denied(said, defaults)))
		return SAYS_DENY | (is_dropped(said, defaults) ? SAYS_DROP : 0);
	if (would_be_denied(said, defaults) || (asked->is_shared && would_hide_denied(said, defaults)))
		return DRY_DENY;
	return 0;
}

/* The datagrams that the other end sends in the same conversation. */
static __always_inline void turn_around(struct asked *asked, u16 own_port)
{
	asked->direction = asked->direction == INGRESS ? EGRESS : INGRESS;
	asked->port = asked->direction == INGRESS ? own_port : __builtin_bswap16(asked->peer.port);
}

/*
 * Whether a datagram that rules deny, or would deny, answers one that they allowed. They are asked again, since they may have
 * changed in between: who has lost the right to ask gets no more answers, and its answers open no door.
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

/* What rules say of this, but for datagrams that answer one which they allow the other way. */
static __always_inline u32 evaluate(const struct policed *pod, struct asked *asked, u16 own_port)
{
	bool is_ingress = asked->direction == INGRESS;
	/* Both are read: to choose the place is arithmetic with a pointer, which takes CAP_PERFMON to load. */
	const volatile struct policed *its = pod;
	u32 out = its->defaults[EGRESS], into = its->defaults[INGRESS];
	u32 defaults = is_ingress ? into : out, others = is_ingress ? out : into;
	bool is_datagram = asked->protocol == IPPROTO_UDP ? own_port != 0 : asked->protocol == PROTOCOL_OTHER;
	u32 verdict = verdict_of(pod, asked, defaults);

	if (verdict && is_datagram && is_answer(pod, asked, others, own_port))
		return 0;
	if (!(verdict & SAYS_DENY) && is_datagram && others & JUDGED) {
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

	/* What matters is the port that was dialled; a client's own is as good as any. */
	facts.frontend.port = __builtin_bswap16(asked->port);
	emit(&facts);
}
