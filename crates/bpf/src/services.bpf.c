// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Capture and Services at the socket. First, what a pod's rules redirect goes to its proxy. Then connect() and sendmsg() to a
 * Service's address go to one of its backends. getpeername() and recvmsg() report the address that the program dialled. No packet
 * is ever rewritten.
 */
#include <linux/bpf.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#include "bind.h"
#include "connect.h"
#include "datagram.h"
#include "orig_dst.h"
#include "peer.h"
#include "true_peer.h"
#include "watch_life.h"
#include "dispatch.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/*
 * One hook for both families: `work` gets the address of the context, may change it, and returns whether the call may proceed.
 */
#define ADDRESS_HOOK(hook, family, work)                          \
	SEC("cgroup/" #hook #family)                              \
	int hook##family(struct bpf_sock_addr *ctx)               \
	{                                                         \
		struct endpoint address = load##family(ctx);      \
		int verdict = yes_or_no(work(ctx, &address));     \
								  \
		store##family(ctx, &address);                     \
		return verdict;                                   \
	}

ADDRESS_HOOK(connect, 4, connect_out)
ADDRESS_HOOK(connect, 6, connect_out)
ADDRESS_HOOK(recvmsg, 4, received_from)
ADDRESS_HOOK(recvmsg, 6, received_from)
ADDRESS_HOOK(getpeername, 4, connected_peer)
ADDRESS_HOOK(getpeername, 6, connected_peer)

SEC("cgroup/sendmsg4")
int sendmsg4(struct bpf_sock_addr *ctx)
{
	struct endpoint to = load4(ctx);
	struct address from = {};
	int verdict = yes_or_no(send_out(ctx, &to, &from));

	store4(ctx, &to);
	if (from.word[3])
		ctx->msg_src_ip4 = from.word[3];
	return verdict;
}

SEC("cgroup/sendmsg6")
int sendmsg6(struct bpf_sock_addr *ctx)
{
	struct endpoint to = load6(ctx);
	struct address from = {};
	int verdict = yes_or_no(send_out(ctx, &to, &from));

	store6(ctx, &to);
	if (from.word[3]) {
		ctx->msg_src_ip6[0] = from.word[0];
		ctx->msg_src_ip6[1] = from.word[1];
		ctx->msg_src_ip6[2] = from.word[2];
		ctx->msg_src_ip6[3] = from.word[3];
	}
	return verdict;
}

SEC("cgroup/post_bind4")
int post_bind4(struct bpf_sock *ctx)
{
	struct endpoint at = { .port = __builtin_bswap16((u16)ctx->src_port) };

	address_set_v4(&at.address, ctx->src_ip4);
	return bound_to(ctx, &at);
}

SEC("cgroup/post_bind6")
int post_bind6(struct bpf_sock *ctx)
{
	struct endpoint at = { .port = __builtin_bswap16((u16)ctx->src_port) };

	at.address = (struct address){ { ctx->src_ip6[0], ctx->src_ip6[1], ctx->src_ip6[2], ctx->src_ip6[3] } };
	return bound_to(ctx, &at);
}

SEC("cgroup/sock_release")
int sock_release(struct bpf_sock *ctx)
{
	struct translation *translation = bpf_sk_storage_get(&translations, ctx, NULL, 0);

	if (translation)
		end_connect(translation, bpf_get_netns_cookie(ctx), bpf_get_socket_cookie(ctx), ctx->protocol);
	remove_orig_dst(ctx);
	return ALLOW;
}

SEC("sockops")
int connections(struct bpf_sock_ops *ctx)
{
	u64 netns;
	struct pod pod = {};

	if (watching)
		watch_life(ctx);
	if (ctx->op == BPF_SOCK_OPS_STATE_CB)
		end_flow(ctx);
	if (ctx->op != BPF_SOCK_OPS_TCP_CONNECT_CB && ctx->op != BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB &&
	    ctx->op != BPF_SOCK_OPS_TCP_LISTEN_CB)
		return 1;
	netns = bpf_get_netns_cookie(ctx);
	if (!read_pod(netns, &pod))
		return 1;
	if (ctx->op == BPF_SOCK_OPS_TCP_CONNECT_CB)
		send_orig_dst(ctx, netns);
	else if (ctx->op == BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB)
		accept_orig_dst(ctx, netns, &pod);
	else
		keep_listener(ctx, netns, &pod);
	return 1;
}

/*
 * Two options are answered here; all others, also those that other programs answer, are left alone. An optval longer than a page
 * is not visible to the program: the kernel fails such a call unless optlen is set to 0, which keeps its own answer.
 */
SEC("cgroup/getsockopt")
int original_dst(struct bpf_sockopt *ctx)
{
	bool is_original = ctx->optname == SO_ORIGINAL_DST && (ctx->level == SOL_IP || ctx->level == SOL_IPV6);
	bool is_true_peer = ctx->optname == TRUE_PEER && ctx->level == SOL_SIDESTEP;

	if ((is_original && answer_original(ctx)) || (is_true_peer && answer_true_peer(ctx)))
		return ALLOW;
	if (ctx->optlen > SMALLEST_PAGE)
		ctx->optlen = 0;
	return ALLOW;
}
