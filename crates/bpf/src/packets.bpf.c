// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Packets at the pods' sockets that neither a call nor sk_lookup has evaluated. The programs are attached where a pod has rules,
 * and on armed nodes.
 */
#include <linux/bpf.h>
#include <linux/in.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#include "packet_in.h"
#include "packet_out.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("cgroup_skb/egress")
int packet_out(struct __sk_buff *skb)
{
	return send_packet(skb);
}

SEC("cgroup_skb/ingress")
int packet_in(struct __sk_buff *skb)
{
	return receive_packet(skb);
}
