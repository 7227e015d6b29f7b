/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The route of a pod's connection or datagram, by the rules of the OUTPUT chain of istio-iptables, in their order: the first
 * rule that matches decides. crates/mesh/src/capture/verdict.rs is the model of this file, and tests compare the two.
 */
#pragma once

#include "owner.h"

#define DNS_PORT 53

enum out_target {
	TARGET_DIRECT,
	TARGET_OUTBOUND,
	TARGET_INBOUND,
	TARGET_DNS,
};

struct outgoing {
	struct endpoint to;
	struct address source; /* of the packets */
	u16 port;	       /* of `to`, in host order */
	u8 protocol;
	bool is_lo;
	bool is_excluded; /* leaves by an excluded interface */
	bool is_127_0_0_1;
	bool has_device; /* the socket is bound to an interface other than lo, or connect() will bind it */
	bool is_bound; /* `source` is the program's choice, not the kernel's */
	struct owner owner;
};

/* 127.0.0.6 or ::6, from which the proxy dials its own pod's programs. */
static __always_inline bool is_passthrough_source(const struct address *a)
{
	if (address_is_v4(a))
		return a->word[3] == __builtin_bswap32(0x7f000006);
	return !a->word[0] && !a->word[1] && !a->word[2] && a->word[3] == __builtin_bswap32(6);
}

/* Rules 4a and 5a: the proxy calls its own pod by an address, as any client would. Rule 5a (groups) has no exception for DNS. */
static __always_inline bool calls_itself(const struct pod *pod, const struct outgoing *out, bool dns_excepted)
{
	if (!out->is_lo || out->is_127_0_0_1 || out->protocol != IPPROTO_TCP || out->port == pod->tunnel_port)
		return false;
	return !(dns_excepted && pod->flags & POD_DNS && out->port == DNS_PORT);
}

/* Rules 4b and 5b: the destination is inside the pod, and the caller is not the proxy. */
static __always_inline bool stays_inside(const struct pod *pod, const struct outgoing *out)
{
	if (!out->is_lo || pod->flags & POD_LOOPBACK_INCLUDED)
		return false;
	return !(pod->flags & POD_DNS) || (out->protocol == IPPROTO_TCP && out->port != DNS_PORT);
}

/*
 * Rules 4 and 5 test the configured owners in turn. Where 4b applies, only the first one is tested: any other caller counts as
 * not the proxy. Returns false if no rule decides.
 */
static __always_inline bool decided_by_owner(const struct pod *pod, const struct outgoing *out, enum out_target *target)
{
	bool inside = stays_inside(pod, out);
	bool is_uid = inside ? pod->flags & POD_HAS_UIDS && out->owner.uid == pod->first_uid
			     : in_set(pod->rules, KIND_UID, out->owner.uid);
	bool is_gid;

	*target = TARGET_DIRECT;
	if (is_uid) {
		if (calls_itself(pod, out, true))
			*target = TARGET_INBOUND;
		return true;
	}
	if (inside && pod->flags & POD_HAS_UIDS)
		return true;
	is_gid = inside ? pod->flags & POD_HAS_GIDS && out->owner.gid == pod->first_gid : in_set(pod->rules, KIND_GID, out->owner.gid);
	if (is_gid && calls_itself(pod, out, false))
		*target = TARGET_INBOUND;
	return is_gid || (inside && pod->flags & POD_HAS_GIDS);
}

static __always_inline bool is_dns(const struct pod *pod, const struct outgoing *out)
{
	if (!(pod->flags & POD_DNS) || out->port != DNS_PORT)
		return false;
	return pod->flags & POD_DNS_ALL || find_range(pod->rules, KIND_RESOLVER, &out->to.address);
}

/* Rules 8 to 11. */
static __always_inline enum out_target by_destination(const struct pod *pod, const struct outgoing *out)
{
	if (out->protocol != IPPROTO_TCP || out->is_127_0_0_1)
		return TARGET_DIRECT;
	if (find_range(pod->rules, KIND_EXCLUDED_RANGE, &out->to.address))
		return TARGET_DIRECT;
	if (in_set(pod->rules, KIND_INCLUDED_PORT, out->port) || is_included(pod, &out->to.address))
		return TARGET_OUTBOUND;
	return TARGET_DIRECT;
}

VERIFIED_ONCE enum out_target target_of(const struct pod *pod, const struct outgoing *out)
{
	bool listed;
	enum out_target target;

	if (!pod || !out || out->is_excluded || in_set(pod->rules, KIND_EXCLUDED_PORT, out->port))
		return TARGET_DIRECT;
	if (out->is_lo && is_passthrough_source(&out->source))
		return TARGET_DIRECT;
	if (decided_by_owner(pod, out, &target))
		return target;
	listed = in_set(pod->rules, KIND_GROUP, out->owner.gid);
	if (listed == !!(pod->flags & POD_GROUPS_ALL_BUT))
		return TARGET_DIRECT;
	if (is_dns(pod, out))
		return TARGET_DNS;
	return by_destination(pod, out);
}
