// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Splices two local TCP sockets: what one writes is put straight into the other's queue, without segments, acknowledgements or
 * softirqs. The handshake and the end are TCP's.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#include "splice_enter.h"
#include "splice_option.h"
#include "splice_return.h"
#include "splice_send.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("sockops")
int splice_join(struct bpf_sock_ops *ctx)
{
	switch (ctx->op) {
	case BPF_SOCK_OPS_RWND_INIT:
		if (!ctx->is_fullsock)
			announce(ctx);
		break;
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
		offer(ctx);
		break;
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		join(ctx);
		break;
	case BPF_SOCK_OPS_RTT_CB:
		acknowledged(ctx);
		break;
	}
	return 1;
}

SEC("sk_msg")
int splice_write(struct sk_msg_md *msg)
{
	struct bpf_sock *sk = msg->sk;
	struct end *end = sk ? bpf_sk_storage_get(&ends, sk, NULL, 0) : NULL;
	struct tcp_sock *tcp = end ? bpf_skc_to_tcp_sock(sk) : NULL;

	return tcp ? write_from(msg, end, tcp) : SK_PASS;
}

/* A socket is being closed: the kernel removes its key next, so its mate must be told why the key is missing. */
SEC("cgroup/sock_release")
int splice_close(struct bpf_sock *ctx)
{
	struct end *end = bpf_sk_storage_get(&ends, ctx, NULL, 0);

	if (end)
		part(end);
	return 1;
}

/* Refuses options that a spliced socket cannot support, with the error of a kernel that lacks them. */
SEC("cgroup/setsockopt")
int splice_option(struct bpf_sockopt *ctx)
{
	return refuse_option(ctx);
}
