/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Frames that are no plain TCP: with a VLAN tag, IPv4 options, a fragment, IPv6 extension headers, or an ICMP error. They are
 * rare, so they are read with a helper: a pointer with a variable offset would take CAP_PERFMON.
 *
 * The kernel would give such a segment to its socket, so it must be recognised as well. Fragments after the first have no ports;
 * without the first, which has them, the kernel cannot reassemble the packet.
 */
#pragma once

#include <bpf/bpf_endian.h>
#include <linux/if_ether.h>

#include "ip.h"
#include "taken.h"

#define TAGS 4	  /* VLAN tags that are read */
#define HEADERS 8 /* extension headers that are read */

#define PROTOCOL_TCP 6
#define PROTOCOL_NONE 59 /* also stands for fragments after the first */

#define ETHERTYPE_8021Q 0x8100
#define ETHERTYPE_8021AD 0x88a8
#define VLAN_ID 0x0fff
#define ETHERTYPE_AT 12 /* its offset in a frame */

enum reading {
	READ,	  /* the packet is of a protocol that may concern a taken connection */
	OTHER,	  /* it is not, or the kernel refuses it as well */
	TOO_DEEP, /* it is hidden behind more headers than any sender has a use for */
};

/* Where the reading of a frame has come to. */
struct position {
	u32 at;		/* offset of the next header */
	u32 protocol;	/* of that header: an EtherType first, an IP protocol then */
};

/* The frame of an XDP program, or of a tc program: which of them is known when this is compiled. */
struct frame {
	bool is_skb;
	void *ctx;
};

static __always_inline bool load(const struct frame *frame, u32 at, void *to, u32 size)
{
	if (frame->is_skb)
		return bpf_skb_load_bytes(frame->ctx, at, to, size) == 0;
	return bpf_xdp_load_bytes(frame->ctx, at, to, size) == 0;
}

/* VLAN id in a tag that is not among the frame's bytes any more. XDP does not see it. */
static __always_inline u16 vlan_beside(const struct frame *frame)
{
	const struct __sk_buff *skb = frame->ctx;

	return frame->is_skb && skb->vlan_present ? skb->vlan_tci & VLAN_ID : 0;
}

#define LOAD(frame, at, header) load(frame, at, &(header), sizeof(header))

static __always_inline bool is_tag(u32 ethertype)
{
	return ethertype == ETHERTYPE_8021Q || ethertype == ETHERTYPE_8021AD;
}

/* The kernel ignores tags that only have a priority. No device is known by two ids. */
static __always_inline enum reading read_tags(const struct frame *frame, struct position *position, struct taken_key *key)
{
	u16 tag[2];

	for (int i = 0; i < TAGS && is_tag(position->protocol); i++) {
		u16 id;

		if (!LOAD(frame, position->at, tag))
			return OTHER;
		id = bpf_ntohs(tag[0]) & VLAN_ID;
		if (id && key->vlan)
			return OTHER;
		key->vlan |= id;
		position->at += sizeof(tag);
		position->protocol = bpf_ntohs(tag[1]);
	}
	return is_tag(position->protocol) ? TOO_DEEP : READ;
}

static __always_inline enum reading read_ipv4(const struct frame *frame, struct position *position, struct address *from,
						struct address *to)
{
	struct ipv4_header header;

	if (!LOAD(frame, position->at, header) || header.length >> 4 != 4 || (header.length & 15) < 5)
		return OTHER;
	address_set_v4(from, header.from);
	address_set_v4(to, header.to);
	position->at += ipv4_header_size(&header);
	position->protocol = header.fragment & IPV4_LATER_FRAGMENT ? PROTOCOL_NONE : header.protocol;
	return READ;
}

static __always_inline enum reading read_extensions(const struct frame *frame, struct position *position)
{
	for (int i = 0; i < HEADERS && is_ipv6_extension(position->protocol); i++) {
		u32 protocol = position->protocol;
		struct ipv6_extension header;

		if (!LOAD(frame, position->at, header))
			return OTHER;
		position->at += ipv6_extension_size(protocol, &header);
		position->protocol = header.next;
		if (is_later_fragment(protocol, &header))
			position->protocol = PROTOCOL_NONE;
	}
	return is_ipv6_extension(position->protocol) ? TOO_DEEP : READ;
}

static __always_inline enum reading read_ipv6(const struct frame *frame, struct position *position, struct address *from,
						struct address *to)
{
	struct ipv6_header header;

	if (!LOAD(frame, position->at, header) || header.version >> 4 != 6)
		return OTHER;
	*from = header.from;
	*to = header.to;
	position->at += IPV6_HEADER;
	position->protocol = header.next;
	return read_extensions(frame, position);
}

static __always_inline bool is_icmp_error(u32 protocol, u8 type)
{
	if (protocol == PROTOCOL_ICMPV6)
		return type >= 1 && type <= 4;
	/* Destination unreachable, source quench, time exceeded, parameter problem. */
	return protocol == PROTOCOL_ICMP && (type == 3 || type == 4 || type == 11 || type == 12);
}

/* An ICMP error quotes a packet that this host has sent. Only errors are read on: the position is that of the quoted packet. */
static __always_inline enum reading read_icmp(const struct frame *frame, struct position *position)
{
	u8 header[8];

	if (!LOAD(frame, position->at, header) || !is_icmp_error(position->protocol, header[0]))
		return OTHER;
	position->at += sizeof(header);
	position->protocol = position->protocol == PROTOCOL_ICMP ? ETH_P_IP : ETH_P_IPV6;
	return READ;
}

static __always_inline enum reading read_ip(const struct frame *frame, struct position *position, struct address *from,
						struct address *to)
{
	if (position->protocol == ETH_P_IP)
		return read_ipv4(frame, position, from, to);
	return position->protocol == ETH_P_IPV6 ? read_ipv6(frame, position, from, to) : OTHER;
}

/* Reads the connection that the frame is of, or that the ICMP error is about. */
static __always_inline enum reading read_frame(const struct frame *frame, struct position *position, struct taken_key *key)
{
	enum reading reading = read_tags(frame, position, key);
	u16 ports[2];
	bool is_quote;

	if (reading == READ)
		reading = read_ip(frame, position, &key->remote, &key->local);
	is_quote = reading == READ && position->protocol != PROTOCOL_TCP;
	if (is_quote)
		reading = read_icmp(frame, position);
	if (is_quote && reading == READ)
		reading = read_ip(frame, position, &key->local, &key->remote);
	if (reading != READ)
		return reading;
	if (position->protocol != PROTOCOL_TCP || !LOAD(frame, position->at, ports))
		return OTHER;
	key->local_port = is_quote ? ports[0] : ports[1];
	key->remote_port = is_quote ? ports[1] : ports[0];
	return READ;
}

/*
 * An ICMP error about a taken connection goes to user space, too: the kernel would act on its parked socket. User space gives
 * the connection back, and the error after it. Frames that are hidden too deep are dropped: whose they are cannot be told.
 */
static __always_inline enum fate look_closely(const struct frame *frame)
{
	struct position position = { .at = ETH_HLEN };
	struct taken_key key = { .vlan = vlan_beside(frame) };
	u16 ethertype;

	if (!LOAD(frame, ETHERTYPE_AT, ethertype))
		return TO_KERNEL;
	position.protocol = bpf_ntohs(ethertype);
	switch (read_frame(frame, &position, &key)) {
	case READ:
		return fate_of(&key);
	case TOO_DEEP:
		return TO_NOBODY;
	default:
		return TO_KERNEL;
	}
}
