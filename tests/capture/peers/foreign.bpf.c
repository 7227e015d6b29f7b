// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* Programs of somebody else at the same cgroup: a port has another name, and an option that no kernel knows has an answer. */
#include <linux/bpf.h>

#define SECTION(name) __attribute__((section(name), used))
#define FROM 7777
#define TO 8080
#define LEVEL 0x5151
#define NAME 7
#define ANSWER 42

char LICENSE[] SECTION("license") = "Dual BSD/GPL";

static inline int exchange(struct bpf_sock_addr *ctx)
{
	if (ctx->user_port == __builtin_bswap16(FROM))
		ctx->user_port = __builtin_bswap16(TO);
	return 1;
}

SECTION("cgroup/connect4")
int foreign4(struct bpf_sock_addr *ctx)
{
	return exchange(ctx);
}

SECTION("cgroup/connect6")
int foreign6(struct bpf_sock_addr *ctx)
{
	return exchange(ctx);
}

SECTION("cgroup/getsockopt")
int foreign_option(volatile struct bpf_sockopt *ctx)
{
	__u8 *value = ctx->optval;

	if (ctx->level != LEVEL || ctx->optname != NAME || (void *)(value + 1) > ctx->optval_end)
		return 1;
	*value = ANSWER;
	ctx->optlen = 1;
	ctx->retval = 0;
	return 1;
}
