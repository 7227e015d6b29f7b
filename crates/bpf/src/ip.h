/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The headers of IPv4 (RFC 791) and IPv6 (RFC 8200), as far as programs read them. */
#pragma once

#include "address.h"

#define IPV4_HEADER 20 /* without options */
#define IPV6_HEADER 40

#define HEADER_HOPS 0
#define HEADER_ROUTING 43
#define HEADER_FRAGMENT 44
#define HEADER_DESTINATION 60

#define PROTOCOL_ICMP 1
#define PROTOCOL_ICMPV6 58

#define IPV4_LATER_FRAGMENT __builtin_bswap16(0x1fff) /* bits of `fragment`: not the first one */
#define IPV6_LATER_FRAGMENT __builtin_bswap16(0xfff8)

struct ipv4_header {
	u8 length; /* version, and the header's length in words */
	u8 before[5];
	u16 fragment;
	u8 lifetime;
	u8 protocol;
	u16 checksum;
	u32 from;
	u32 to;
};

struct ipv6_header {
	u8 version;
	u8 before[5];
	u8 next;
	u8 hops;
	struct address from;
	struct address to;
};

/* An extension header: hop-by-hop options, routing, destination options, or a fragment. */
struct ipv6_extension {
	u8 next;
	u8 length; /* in 8 bytes, less one; not of a fragment */
	u16 fragment;
};

static inline u32 ipv4_header_size(const struct ipv4_header *header)
{
	return (header->length & 15) * 4;
}

static inline bool is_ipv6_extension(u32 protocol)
{
	return protocol == HEADER_HOPS || protocol == HEADER_ROUTING || protocol == HEADER_FRAGMENT ||
	       protocol == HEADER_DESTINATION;
}

static inline u32 ipv6_extension_size(u32 protocol, const struct ipv6_extension *header)
{
	return protocol == HEADER_FRAGMENT ? 8 : (header->length + 1) * 8;
}

/* A fragment after the first one: the headers of the packet are in the first. */
static inline bool is_later_fragment(u32 protocol, const struct ipv6_extension *header)
{
	return protocol == HEADER_FRAGMENT && header->fragment & IPV6_LATER_FRAGMENT;
}
