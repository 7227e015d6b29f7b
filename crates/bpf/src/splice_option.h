/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Socket options that splicing cannot support. */
#pragma once

#include "splice_maps.h"

#define SOL_SOCKET 1
#define SOL_TCP 6
#define SO_ZEROCOPY 60
#define TCP_ULP 31
#define ENOENT 2
#define EOPNOTSUPP 95

/* The errno of a kernel that lacks the option; 0 for all other options. */
static __always_inline int error_of_option(int level, int name)
{
	if (level == SOL_SOCKET && name == SO_ZEROCOPY)
		return -EOPNOTSUPP;
	if (level == SOL_TCP && name == TCP_ULP)
		return -ENOENT;
	return 0;
}

static __always_inline int refuse_option(struct bpf_sockopt *ctx)
{
	int error = error_of_option(ctx->level, ctx->optname);

	if (!error) {
		if (ctx->optlen > 4096)
			ctx->optlen = 0; /* the kernel then takes the program's own value, in full */
		return 1;
	}
	if (!ctx->sk || !bpf_sk_storage_get(&ends, ctx->sk, NULL, 0))
		return 1;
	bpf_set_retval(error);
	return 0;
}
