/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Tests of the parts that use neither kernel types nor maps, on this machine. Exit code 0: all passed. */
#include <assert.h>
#include <string.h>

#include "../src/policy.h"
#include "../src/services.h"

static void addresses(void)
{
	struct address v4, v6 = { { __builtin_bswap32(0xfd000000), 0, 0, __builtin_bswap32(1) } }, other;

	address_set_v4(&v4, __builtin_bswap32(0x0a000001));
	other = v4;
	assert(address_is_v4(&v4) && !address_is_v4(&v6));
	assert(address_equal(&v4, &other) && !address_equal(&v4, &v6));
	for (int i = 0; i < 4; i++) {
		other = v6;
		other.word[i] ^= 1;
		assert(!address_equal(&other, &v6));
	}
	/* An IPv6 address whose first words are those of a mapped one, but for one bit. */
	other = (struct address){ { 0, 0, __builtin_bswap32(0x0001ffff), v4.word[3] } };
	assert(!address_is_v4(&other));
}

static void unspecified(void)
{
	struct address v4, v6 = { { 1, 2, 3, 4 } }, zero = { { 0, 0, 0, 0 } };

	address_set_v4(&v4, 7);
	address_unspecify(&v4);
	assert(address_is_v4(&v4) && v4.word[3] == 0);
	address_unspecify(&v6);
	assert(address_equal(&v6, &zero));
}

static void loopback(void)
{
	const struct { u32 address; bool is; } cases[] = {
		{ 0x7f000001, true }, { 0x7fffffff, true }, { 0x7e000001, false }, { 0x80000001, false }, { 0, false },
	};
	struct address a, v6 = { { 0, 0, 0, __builtin_bswap32(1) } };

	for (unsigned i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		address_set_v4(&a, __builtin_bswap32(cases[i].address));
		assert(address_is_v4_loopback(&a) == cases[i].is);
	}
	assert(!address_is_v4_loopback(&v6));
}

static void endpoints(void)
{
	struct endpoint a = { .port = 80 }, b = { .port = 80, .pad = 1 }, c = { .port = 81 };

	assert(endpoint_equal(&a, &b) && !endpoint_equal(&a, &c));
}

static void scaled(void)
{
	for (u32 count = 1; count < 100; count++) {
		assert(scale(0, count) == 0);
		assert(scale(0xffffffff, count) == count - 1);
		/* Each result gets an equal share of the random numbers. */
		for (u32 i = 0; i < count; i++) {
			u64 first = (((u64)i << 32) + count - 1) / count;

			assert(scale((u32)first, count) == i);
			assert(first == 0 || scale((u32)(first - 1), count) == i - 1);
		}
	}
	assert(scale(0xffffffff, 0xffffffff) == 0xfffffffe);
}

static void chosen(void)
{
	struct slot slot = { .backend = 1, .other = 2, .own = 1000 };

	assert(slot_choose(&slot, 0) == 1 && slot_choose(&slot, 1000) == 1);
	assert(slot_choose(&slot, 1001) == 2 && slot_choose(&slot, 0xffffffff) == 2);
	slot.own = WHOLLY_OWN;
	assert(slot_choose(&slot, 0xffffffff) == 1);
}

static void expired(void)
{
	const u64 second = 1000000000ull;

	assert(!has_expired(5 * second, 4 * second, 1));
	assert(has_expired(5 * second + 1, 4 * second, 1));
	assert(!has_expired(4 * second, 5 * second, 1)); /* another processor's clock is ahead */
	assert(!has_expired(~0ull, 0, 0xffffffff) == (~0ull <= 0xffffffffull * second));
}

static void nowhere(void)
{
	struct address v4, v6 = { { 0, 0, 0, 0 } }, loopback = { { 0, 0, 0, __builtin_bswap32(1) } };

	address_set_v4(&v4, 0);
	assert(address_is_unspecified(&v4) && address_is_unspecified(&v6) && !address_is_unspecified(&loopback));
	assert(address_is_v6_loopback(&loopback) && !address_is_v6_loopback(&v6) && !address_is_v6_loopback(&v4));
}

static void evaluate(void)
{
	const u32 closed = ISOLATED | SAYS_DENY | DRY_DENY, silent = closed | SAYS_DROP, dry = ISOLATED | DRY_DENY;

	assert(!is_denied(0, ISOLATED) && is_denied(0, closed) && !is_denied(SAYS_ALLOW, closed));
	assert(is_denied(SAYS_ALLOW | SAYS_DENY, ISOLATED) && !is_denied(DRY_DENY, ISOLATED) && is_denied(DRY_ALLOW, closed));
	/* The denying side decides on silence: a rule that refuses is not silenced by the default. */
	assert(is_dropped(0, silent) && !is_dropped(SAYS_DENY, silent) && is_dropped(SAYS_DENY | SAYS_DROP, closed));
	assert(would_be_denied(0, dry) && !would_be_denied(SAYS_ALLOW, dry) && !would_be_denied(DRY_ALLOW, dry));
	assert(would_be_denied(SAYS_ALLOW | DRY_DENY, ISOLATED) && !would_be_denied(0, ISOLATED));
}

int main(void)
{
	nowhere();
	evaluate();
	addresses();
	unspecified();
	loopback();
	endpoints();
	scaled();
	chosen();
	expired();
	return 0;
}
