// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Services at the socket. connect() and sendmsg() to a Service's address go to one of its backends instead; what the
 * program asks of its peer is answered with the Service's address. No packet is ever rewritten.
 */
#include <linux/bpf.h>
#include <linux/in.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#include "bind.h"
#include "connect.h"
#include "datagram.h"
#include "peer.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/*
 * A hook of both families: the address of its context goes through `work`, which may exchange it and says whether the
 * call may go on.
 */
#define ADDRESS_HOOK(hook, family, work)                          \
	SEC("cgroup/" #hook #family)                              \
	int hook##family(struct bpf_sock_addr *ctx)               \
	{                                                         \
		struct endpoint address = load##family(ctx);      \
		int verdict = work(ctx, &address);                \
								  \
		store##family(ctx, &address);                     \
		return verdict;                                   \
	}

ADDRESS_HOOK(connect, 4, connect_to)
ADDRESS_HOOK(connect, 6, connect_to)
ADDRESS_HOOK(sendmsg, 4, send_to)
ADDRESS_HOOK(sendmsg, 6, send_to)
ADDRESS_HOOK(recvmsg, 4, received_from)
ADDRESS_HOOK(recvmsg, 6, received_from)
ADDRESS_HOOK(getpeername, 4, connected_peer)
ADDRESS_HOOK(getpeername, 6, connected_peer)

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

	at.address.word[0] = ctx->src_ip6[0];
	at.address.word[1] = ctx->src_ip6[1];
	at.address.word[2] = ctx->src_ip6[2];
	at.address.word[3] = ctx->src_ip6[3];
	return bound_to(ctx, &at);
}

SEC("cgroup/sock_release")
int sock_release(struct bpf_sock *ctx)
{
	struct translation *translation = bpf_sk_storage_get(&translations, ctx, NULL, 0);

	if (translation)
		forget_connect(translation, bpf_get_netns_cookie(ctx), bpf_get_socket_cookie(ctx), ctx->protocol);
	return ALLOW;
}
