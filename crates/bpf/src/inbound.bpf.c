// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Inbound connections of one pod. Its policies come first. Of a captured pod a SYN is then given to the proxy's listener,
 * whatever port it is for. No packet is rewritten, so the accepted socket's own address is what was dialled. The rules are
 * those of istio-iptables' PREROUTING chain; they are not for what comes from the pod itself, of which connect() has decided.
 */
#include <linux/bpf.h>
#include <linux/in.h>
#include <bpf/bpf_helpers.h>

#include "bypass.h"
#include "capture_maps.h"
#include "inbound.h"
#include "policy_in.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("sk_lookup")
int inbound(struct bpf_sk_lookup *ctx)
{
	const volatile struct bpf_sk_lookup *syn = ctx;
	struct endpoint at = {};
	struct address from;
	struct pod pod;
	u32 verdict;

	verdict = evaluate_arrival(ctx, netns);
	if (verdict)
		return verdict & SAYS_DROP ? swallow(ctx) : SK_DROP;
	if (ctx->protocol != IPPROTO_TCP)
		return SK_PASS;
	if (!captured_pod(netns, &pod))
		return SK_PASS;
	from = ADDRESS_IN(syn, remote);
	if (is_from_inside(ctx, &pod, &from))
		return from_inside(ctx, &pod, &from);
	at.address = ADDRESS_IN(syn, local);
	at.port = __builtin_bswap16((u16)syn->local_port);
	switch (role_of(ctx, &pod, &at.address)) {
	case ROLE_OUTBOUND:
		return give_to(ctx, &pod, ROLE_OUTBOUND);
	case ROLE_INBOUND:
		if (bypasses_inbound(&at, netns, &from))
			return SK_PASS;
		return give_to(ctx, &pod, ROLE_INBOUND);
	default:
		return SK_PASS;
	}
}
