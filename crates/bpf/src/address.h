/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Addresses. One type serves both families: IPv4 address a.b.c.d is stored as ::ffff:a.b.c.d, which is also how an AF_INET6
 * socket names it. So sockets of either family that dial a.b.c.d find the same map entries.
 */
#pragma once

#include "types.h"

struct address {
	u32 word[4]; /* network order */
};

/* An address and a port: where a socket dials, or where it receives from. */
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
 * The address of a socket as BPF contexts hold it: one word for AF_INET, four for AF_INET6. Every word is read before the family
 * is checked, since the verifier allows no load whose offset depends on a condition.
 */
static inline struct address address_in(u32 family, u32 v4, u32 first, u32 second, u32 third, u32 fourth)
{
	struct address address = { .word = { first, second, third, fourth } };

	if (family == AF_INET)
		address_set_v4(&address, v4);
	return address;
}

/* The address at one end (`remote`, `local`, `src`, ...) of a context. */
#define ADDRESS_IN(context, end)                                                                                           \
	address_in((context)->family, (context)->end##_ip4, (context)->end##_ip6[0], (context)->end##_ip6[1],              \
		   (context)->end##_ip6[2], (context)->end##_ip6[3])

/* Sets the address to 0.0.0.0 or ::, keeping its family. */
static inline void address_unspecify(struct address *a)
{
	u32 third = address_is_v4(a) ? MAPPED_WORD : 0;

	a->word[0] = 0;
	a->word[1] = 0;
	a->word[2] = third;
	a->word[3] = 0;
}

/* 127.0.0.0/8. ::1 does not count, since kube-proxy serves no NodePort at ::1. */
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
