// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * A device's frames: those of taken connections go to user space, all others go on into the kernel. Nearly all are plain:
 * untagged TCP or UDP without IP options. One look recognises those; frame.h reads the others.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "frame.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define PROTOCOL_UDP 17

/* `ip`: the IP header. It and the ports behind it are in the frame. */
static __always_inline int look_at_ipv4(struct xdp_md *ctx, const u8 *ip)
{
	const u16 *ports = (const void *)(ip + IPV4_HEADER);
	struct taken_key key = {};

	address_set_v4(&key.remote, *(const u32 *)(ip + 12));
	address_set_v4(&key.local, *(const u32 *)(ip + 16));
	key.remote_port = ports[0];
	key.local_port = ports[1];
	return deliver_if_taken(ctx, &key);
}

static __always_inline int look_at_ipv6(struct xdp_md *ctx, const u8 *ip)
{
	const u16 *ports = (const void *)(ip + IPV6_HEADER);
	struct taken_key key = {};

	key.remote = *(const struct address *)(ip + 8);
	key.local = *(const struct address *)(ip + 24);
	key.remote_port = ports[0];
	key.local_port = ports[1];
	return deliver_if_taken(ctx, &key);
}

static __always_inline bool is_plain_ipv4(const u8 *ip)
{
	return ip[0] == 0x45 && !(*(const u16 *)(ip + 6) & bpf_htons(0x3fff));
}

/* User space sets the flag of programs that can handle frames of several buffers. */
SEC("xdp")
int deliver_taken(struct xdp_md *ctx)
{
	const u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end, *ip = data + ETH_HLEN;
	u16 ethertype;

	if (ip + IPV4_HEADER + 4 > end)
		return XDP_PASS; /* no TCP segment is that short */
	ethertype = bpf_ntohs(*(const u16 *)(data + 12));
	if (ethertype == ETH_P_IP && is_plain_ipv4(ip)) {
		if (ip[9] == PROTOCOL_TCP)
			return look_at_ipv4(ctx, ip);
		if (ip[9] == PROTOCOL_UDP)
			return XDP_PASS;
	}
	if (ethertype == ETH_P_IPV6 && ip + IPV6_HEADER + 4 <= end) {
		if (ip[6] == PROTOCOL_TCP)
			return look_at_ipv6(ctx, ip);
		if (ip[6] == PROTOCOL_UDP)
			return XDP_PASS;
	}
	return look_closely(ctx, ethertype);
}

/* Run by user space on frames of its own, which the kernel then receives. */
SEC("xdp")
int inject(struct xdp_md *ctx)
{
	return XDP_PASS;
}
