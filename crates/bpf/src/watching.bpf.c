// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Counts connections while they are still open. This iterator walks the TCP sockets of one network namespace and adds the traffic
 * of each watched one since the last look. The iterator holds the socket's lock meanwhile, as close does.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "kernel.h"
#include "watch.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("iter/tcp")
int count_traffic(struct bpf_iter__tcp *ctx)
{
	struct sock_common *common = ctx->sk_common;
	struct tcp_sock *tcp;
	struct watched *watched;
	struct relation *relation;

	if (!common)
		return 0;
	tcp = bpf_skc_to_tcp_sock(common);
	watched = tcp ? bpf_sk_storage_get(&watches, tcp, NULL, 0) : NULL;
	if (!watched || !watched->established)
		return 0;
	relation = relation_of(&watched->key);
	if (relation)
		add_traffic(relation, watched, tcp->bytes_acked, tcp->bytes_received, tcp->srtt_us);
	return 0;
}
