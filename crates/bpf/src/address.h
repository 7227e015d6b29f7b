/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Addresses. One kind serves both families: an IPv4 address is the IPv6 address ::ffff:a.b.c.d, which is also how an
 * AF_INET6 socket names it. So a socket of either family that dials a.b.c.d finds the same entries.
 */
#pragma once

#include "types.h"

struct address {
	u32 word[4]; /* network order */
};

/* What a socket dials or hears from. */
struct endpoint {
	struct address address;
	u16 port; /* network order */
	u16 pad;
};

#define AF_INET 2
#define AF_INET6 10

#define MAPPED_WORD __builtin_bswap32(0x0000ffff)

static inline bool address_is_v4(const struct address *a)
{
	return a->word[0] == 0 && a->word[1] == 0 && a->word[2] == MAPPED_WORD;
}

static inline void address_set_v4(struct address *a, u32 v4)
{
	a->word[0] = 0;
	a->word[1] = 0;
	a->word[2] = MAPPED_WORD;
	a->word[3] = v4;
}

/*
 * A socket's address as contexts have it: one word of an AF_INET socket, four of an AF_INET6 one. All are read before the
 * family is looked at, since the verifier allows no load whose offset depends on a condition.
 */
static inline struct address address_in(u32 family, u32 v4, u32 first, u32 second, u32 third, u32 fourth)
{
	struct address address = { .word = { first, second, third, fourth } };

	if (family == AF_INET)
		address_set_v4(&address, v4);
	return address;
}

/* The fields of one end of a context. */
#define ADDRESS_IN(context, end)                                                                                           \
	address_in((context)->family, (context)->end##_ip4, (context)->end##_ip6[0], (context)->end##_ip6[1],              \
		   (context)->end##_ip6[2], (context)->end##_ip6[3])

/* 0.0.0.0 or ::, of the address's family. */
static inline void address_unspecify(struct address *a)
{
	u32 third = address_is_v4(a) ? MAPPED_WORD : 0;

	a->word[0] = 0;
	a->word[1] = 0;
	a->word[2] = third;
	a->word[3] = 0;
}

/* 127.0.0.0/8; ::1 is not meant, since no kube-proxy answers for NodePorts there. */
static inline bool address_is_v4_loopback(const struct address *a)
{
	return address_is_v4(a) && (a->word[3] & __builtin_bswap32(0xff000000)) == __builtin_bswap32(0x7f000000);
}

/* ::1 */
static inline bool address_is_v6_loopback(const struct address *a)
{
	return !a->word[0] && !a->word[1] && !a->word[2] && a->word[3] == __builtin_bswap32(1);
}

/* 0.0.0.0 or :: */
static inline bool address_is_unspecified(const struct address *a)
{
	return !a->word[0] && !a->word[1] && (!a->word[2] || a->word[2] == MAPPED_WORD) && !a->word[3];
}

static inline bool address_equal(const struct address *a, const struct address *b)
{
	return a->word[0] == b->word[0] && a->word[1] == b->word[1] && a->word[2] == b->word[2] && a->word[3] == b->word[3];
}

static inline bool endpoint_equal(const struct endpoint *a, const struct endpoint *b)
{
	return a->port == b->port && address_equal(&a->address, &b->address);
}
