/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What a packet says that arrives at a device. Devices differ in what precedes the IP header, so reads begin at that. */
#pragma once

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <linux/if_ether.h>
#include <linux/in.h>

#include "ip.h"

#define EXTENSIONS 6 /* that are skipped */

#define TCP_FLAGS 13 /* offset in the header */
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10

struct arrival {
	struct endpoint from, to;
	u8 protocol;
	bool v4;
	bool begins; /* TCP: SYN */
	bool resets; /* TCP: RST */
};

static __always_inline bool read_at(struct __sk_buff *skb, u32 at, void *into, u32 size)
{
	return !bpf_skb_load_bytes_relative(skb, at, into, size, BPF_HDR_START_NET);
}

/* False: has no ports. */
static __always_inline bool read_ports(struct __sk_buff *skb, struct arrival *arrival, u32 at)
{
	u16 ports[2];
	u8 flags;

	if (arrival->protocol != IPPROTO_TCP && arrival->protocol != IPPROTO_UDP)
		return false;
	if (!read_at(skb, at, ports, sizeof(ports)))
		return false;
	arrival->from.port = ports[0];
	arrival->to.port = ports[1];
	if (arrival->protocol == IPPROTO_UDP)
		return true;
	if (!read_at(skb, at + TCP_FLAGS, &flags, sizeof(flags)))
		return false;
	arrival->begins = (flags & (TCP_SYN | TCP_ACK | TCP_RST)) == TCP_SYN;
	arrival->resets = flags & TCP_RST;
	return true;
}

static __always_inline bool read_arrival4(struct __sk_buff *skb, struct arrival *arrival)
{
	struct ipv4_header header;

	if (!read_at(skb, 0, &header, sizeof(header)) || header.fragment & IPV4_LATER_FRAGMENT)
		return false;
	address_set_v4(&arrival->from.address, header.from);
	address_set_v4(&arrival->to.address, header.to);
	arrival->protocol = header.protocol;
	arrival->v4 = true;
	return read_ports(skb, arrival, ipv4_header_size(&header));
}

static __always_inline bool read_arrival6(struct __sk_buff *skb, struct arrival *arrival)
{
	struct ipv6_header header;
	u32 at = IPV6_HEADER;

	if (!read_at(skb, 0, &header, sizeof(header)))
		return false;
	arrival->from.address = header.from;
	arrival->to.address = header.to;
	arrival->protocol = header.next;
	for (int i = 0; i < EXTENSIONS && is_ipv6_extension(arrival->protocol); i++) {
		struct ipv6_extension extension;

		if (!read_at(skb, at, &extension, sizeof(extension)) || is_later_fragment(arrival->protocol, &extension))
			return false;
		at = (at + ipv6_extension_size(arrival->protocol, &extension)) & 0xffff;
		arrival->protocol = extension.next;
	}
	return read_ports(skb, arrival, at);
}

/* False: no first or only packet of TCP or UDP. The kernel puts fragments together before it translates them. */
static __always_inline bool read_arrival(struct __sk_buff *skb, struct arrival *arrival)
{
	if (skb->protocol == bpf_htons(ETH_P_IP))
		return read_arrival4(skb, arrival);
	return skb->protocol == bpf_htons(ETH_P_IPV6) && read_arrival6(skb, arrival);
}
