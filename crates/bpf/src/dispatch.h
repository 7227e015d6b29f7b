/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Where a call goes: to the proxy if the pod's rules say so, else to a Service's backend, else where it was addressed. */
#pragma once

#include "arming.h"
#include "connect.h"
#include "datagram.h"
#include "redirect.h"
#include "repair.h"
#include "source_route.h"

/* Denies the call, with its error set, while the agent has not admitted the caller's network namespace. */
static __always_inline bool is_barred(struct bpf_sock_addr *ctx, const struct endpoint *to)
{
	u64 netns;

	if (!is_armed() || is_own_host(&to->address))
		return false;
	netns = bpf_get_netns_cookie(ctx);
	if (is_admitted(netns))
		return false;
	emit_event(REASON_NOT_ADMITTED_OUT, netns, protocol_of(ctx), to, 0);
	bpf_set_retval(-ENETUNREACH);
	return true;
}

/* Whether the calling process, not the socket, is in the node's network namespace. Without CAP_PERFMON nobody is told apart. */
static __always_inline bool is_called_by_node(void)
{
	struct task_struct___caller *task;

	if (!may_read_kernel)
		return true;
	task = (void *)bpf_get_current_task();
	return BPF_CORE_READ(task, nsproxy, net_ns, net_cookie) == node_netns;
}

/* Whether the call gives an established connection back. A pod that has CAP_NET_ADMIN must not get past its rules by repair mode. */
static __always_inline bool is_give_back(struct bpf_sock_addr *ctx)
{
	return protocol_of(ctx) == IPPROTO_TCP && ctx->sk->src_port && is_in_repair(ctx) && is_called_by_node();
}

static __always_inline int connect_out(struct bpf_sock_addr *ctx, struct endpoint *to)
{
	enum redirect redirect = NOT_REDIRECTED;
	struct pod pod = {};

	if (is_give_back(ctx))
		return ALLOW;
	if (is_barred(ctx, to))
		return DENY;
	if (captured_pod(bpf_get_netns_cookie(ctx), &pod)) {
		if (is_source_routed(ctx, to))
			return DENY;
		redirect = redirect_connect(ctx, &pod, to);
	}
	if (redirect == NOT_REDIRECTED)
		return connect_to(ctx, to);
	end_earlier(ctx);
	return redirect == REDIRECTED ? ALLOW : DENY;
}

/* `from` is set to the datagram's source address if it must differ from the kernel's choice. */
static __always_inline int send_out(struct bpf_sock_addr *ctx, struct endpoint *to, struct address *from)
{
	enum redirect redirect = NOT_REDIRECTED;
	struct pod pod = {};

	if (is_barred(ctx, to))
		return DENY;
	end_aborted(ctx, to);
	if (captured_pod(bpf_get_netns_cookie(ctx), &pod))
		redirect = redirect_datagram(ctx, &pod, to, from);
	if (redirect == NOT_REDIRECTED)
		return send_to(ctx, to);
	return redirect == REDIRECTED ? ALLOW : DENY;
}
