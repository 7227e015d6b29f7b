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

/* enum tcx_action_base of linux/bpf.h (6.6) */
#define TCX_NEXT -1
#define TCX_DROP 2

/*
 * The kernel's own socket of a taken connection must see no segment: it is parked at old sequence numbers. So a frame for which
 * there is no AF_XDP socket is dropped, never passed.
 */
static __always_inline int deliver(struct xdp_md *ctx)
{
	return bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_DROP);
}

/* `ip`: the IP header. It and the ports behind it are in the frame. */
static __always_inline enum fate look_at_ipv4(const u8 *ip)
{
	const u16 *ports = (const void *)(ip + IPV4_HEADER);
	struct taken_key key = {};

	address_set_v4(&key.remote, *(const u32 *)(ip + 12));
	address_set_v4(&key.local, *(const u32 *)(ip + 16));
	key.remote_port = ports[0];
	key.local_port = ports[1];
	return fate_of(&key);
}

static __always_inline enum fate look_at_ipv6(const u8 *ip)
{
	const u16 *ports = (const void *)(ip + IPV6_HEADER);
	struct taken_key key = {};

	key.remote = *(const struct address *)(ip + 8);
	key.local = *(const struct address *)(ip + 24);
	key.remote_port = ports[0];
	key.local_port = ports[1];
	return fate_of(&key);
}

static __always_inline bool is_plain_ipv4(const u8 *ip)
{
	return ip[0] == 0x45 && !(*(const u16 *)(ip + 6) & bpf_htons(0x3fff));
}

/* `end`: that of the bytes which can be read directly, which may be fewer than the frame's. */
static __always_inline enum fate look(const u8 *data, const u8 *end)
{
	const u8 *ip = data + ETH_HLEN;
	u16 ethertype;

	if (ip + IPV4_HEADER + 4 > end)
		return UNCLEAR;
	ethertype = bpf_ntohs(*(const u16 *)(data + ETHERTYPE_AT));
	if (ethertype == ETH_P_IP && is_plain_ipv4(ip)) {
		if (ip[9] == PROTOCOL_TCP)
			return look_at_ipv4(ip);
		if (ip[9] == PROTOCOL_UDP)
			return TO_KERNEL;
	}
	if (ethertype == ETH_P_IPV6 && ip + IPV6_HEADER + 4 <= end) {
		if (ip[6] == PROTOCOL_TCP)
			return look_at_ipv6(ip);
		if (ip[6] == PROTOCOL_UDP)
			return TO_KERNEL;
	}
	return UNCLEAR;
}

static __noinline enum fate look_closely_by_xdp(struct xdp_md *ctx)
{
	return look_closely(&(struct frame){ .ctx = ctx });
}

static __noinline enum fate look_closely_by_tc(struct __sk_buff *skb)
{
	return look_closely(&(struct frame){ .is_skb = true, .ctx = skb });
}

/* On a device with XDP. User space sets the flag of programs that can handle frames of several buffers. */
SEC("xdp")
int deliver_taken(struct xdp_md *ctx)
{
	enum fate fate = look((void *)(long)ctx->data, (void *)(long)ctx->data_end);

	if (fate == UNCLEAR)
		fate = look_closely_by_xdp(ctx);
	if (fate == TO_USER)
		return deliver(ctx);
	return fate == TO_KERNEL ? XDP_PASS : XDP_DROP;
}

/* Index of the inlet. */
const volatile u32 inlet = 0;

/*
 * XDP sees the bytes of a frame only. So a tag that the kernel or the device has taken out of them is put back: what is pushed is
 * a second one, in its place.
 */
static __always_inline int divert(struct __sk_buff *skb)
{
	if (skb->vlan_present && bpf_skb_vlan_push(skb, skb->vlan_proto, skb->vlan_tci))
		return TCX_DROP;
	return bpf_redirect(inlet, BPF_F_INGRESS);
}

/* On a device without XDP of its own. Others' programs may follow. */
SEC("tcx/ingress")
int divert_taken(struct __sk_buff *skb)
{
	enum fate fate = UNCLEAR;

	if (!skb->vlan_present)
		fate = look((void *)(long)skb->data, (void *)(long)skb->data_end);
	if (fate == UNCLEAR)
		fate = look_closely_by_tc(skb);
	if (fate == TO_USER)
		return divert(skb);
	return fate == TO_KERNEL ? TCX_NEXT : TCX_DROP;
}

/* On the inlet: only frames that were diverted come to it. */
SEC("xdp")
int deliver_diverted(struct xdp_md *ctx)
{
	return deliver(ctx);
}

/* Run by user space on frames of its own, which the kernel then receives. */
SEC("xdp")
int inject(struct xdp_md *ctx)
{
	return XDP_PASS;
}
