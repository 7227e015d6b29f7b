// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Incoming connections of one pod. Its policies come first. If the pod is captured, a SYN to any captured port is then given to
 * the proxy's listener. No packet is rewritten, so the accepted socket's own address is the dialled one. The rules are those of
 * the PREROUTING chain of istio-iptables. They do not apply to the pod's connections to itself: connect() has decided on those.
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
	struct pod pod = {};
	u32 verdict;
	int role;

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
	role = role_of(ctx, &pod, &at.address);
	if (role == NO_ROLE || (role == ROLE_INBOUND && bypasses_inbound(&at, netns, &from)))
		return SK_PASS;
	return yes_or_no(give_to(ctx, pod.flags, role)) ? SK_PASS : SK_DROP;
}
