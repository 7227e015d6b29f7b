// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Services at the socket. connect() and sendmsg() to a Service's address go to one of its backends instead; what the
 * program asks of its peer is answered with the Service's address. No packet is ever rewritten.
 */
#include <linux/bpf.h>
#include <linux/in.h>
#include <bpf/bpf_helpers.h>

#include "bind.h"
#include "connect.h"
#include "datagram.h"
#include "peer.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("cgroup/connect4")
int connect4(struct bpf_sock_addr *ctx)
{
	struct endpoint to = load4(ctx);
	int verdict = connect_to(ctx, &to);

	store4(ctx, &to);
	return verdict;
}

SEC("cgroup/connect6")
int connect6(struct bpf_sock_addr *ctx)
{
	struct endpoint to = load6(ctx);
	int verdict = connect_to(ctx, &to);

	store6(ctx, &to);
	return verdict;
}

SEC("cgroup/sendmsg4")
int sendmsg4(struct bpf_sock_addr *ctx)
{
	struct endpoint to = load4(ctx);
	int verdict = send_to(ctx, &to);

	store4(ctx, &to);
	return verdict;
}

SEC("cgroup/sendmsg6")
int sendmsg6(struct bpf_sock_addr *ctx)
{
	struct endpoint to = load6(ctx);
	int verdict = send_to(ctx, &to);

	store6(ctx, &to);
	return verdict;
}

SEC("cgroup/recvmsg4")
int recvmsg4(struct bpf_sock_addr *ctx)
{
	struct endpoint from = load4(ctx);

	received_from(ctx, &from);
	store4(ctx, &from);
	return ALLOW;
}

SEC("cgroup/recvmsg6")
int recvmsg6(struct bpf_sock_addr *ctx)
{
	struct endpoint from = load6(ctx);

	received_from(ctx, &from);
	store6(ctx, &from);
	return ALLOW;
}

SEC("cgroup/getpeername4")
int getpeername4(struct bpf_sock_addr *ctx)
{
	struct endpoint peer = load4(ctx);

	connected_peer(ctx, &peer);
	store4(ctx, &peer);
	return ALLOW;
}

SEC("cgroup/getpeername6")
int getpeername6(struct bpf_sock_addr *ctx)
{
	struct endpoint peer = load6(ctx);

	connected_peer(ctx, &peer);
	store6(ctx, &peer);
	return ALLOW;
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
