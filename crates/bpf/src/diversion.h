/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* connect() and sendmsg() of a pod: those that its rules say go to its proxy, which will ask for what was dialled. */
#pragma once

#include "bypass.h"
#include "context.h"
#include "datagram.h"
#include "outbound.h"

/* What became of a call. */
enum diversion {
	NOT_DIVERTED,
	DIVERTED,
	REFUSED,
};

static __always_inline void ask_owner(struct bpf_sock_addr *ctx, struct outgoing *out)
{
	struct bpf_sock_addr_kern *context;
	const struct cred *cred;
	struct file *file;

	if (!may_read_kernel) {
		u64 current = bpf_get_current_uid_gid();

		out->uid = (u32)current;
		out->gid = current >> 32;
		return;
	}
	out->uid = out->gid = NOBODY;
	context = bpf_cast_to_kern_ctx(ctx);
	file = BPF_CORE_READ(context, sk, sk_socket, file);
	if (!file)
		return;
	cred = BPF_CORE_READ(file, f_cred);
	out->uid = BPF_CORE_READ(cred, fsuid.val);
	out->gid = BPF_CORE_READ(cred, fsgid.val);
}

/* The address that the program has bound to; unspecified if none. */
static __always_inline struct address bound_source(const struct bpf_sock_addr *ctx, bool v4)
{
	const volatile struct bpf_sock *sock = ctx->sk;
	struct address source = ADDRESS_IN(sock, src);

	/* An IPv6 socket that is bound to nothing may dial either. */
	if (v4 && !source.word[3])
		address_set_v4(&source, 0);
	return source;
}

static __always_inline struct route *ask_route(const struct bpf_sock_addr *ctx, const struct pod *pod, struct outgoing *out)
{
	struct route *route = find_range(pod->place, KIND_ROUTE, &out->to.address);
	u32 bound = ((const volatile struct bpf_sock *)ctx->sk)->bound_dev_if;

	out->is_lo = bound ? bound == LOOPBACK_INTERFACE : route && route->flags & ROUTE_LOCAL;
	out->is_excluded = bound ? in_set(pod->place, KIND_EXCLUDED_INTERFACE, bound) : route && route->flags & ROUTE_EXCLUDED;
	return route;
}

/* 127.0.0.1 or ::1, as a redirection takes for what the host itself sends. */
static __always_inline void set_loopback(struct endpoint *at, bool v4, u16 port)
{
	if (v4) {
		address_set_v4(&at->address, __builtin_bswap32(0x7f000001));
	} else {
		at->address.word[0] = at->address.word[1] = at->address.word[2] = 0;
		at->address.word[3] = __builtin_bswap32(1);
	}
	at->port = __builtin_bswap16(port);
	at->pad = 0;
}

/* connect() would take a source that suits the loopback; the proxy is to see the one that suits what was dialled. */
static __always_inline int bind_source(struct bpf_sock_addr *ctx, const struct address *source)
{
	struct sockaddr_in6 at6 = { .sin6_family = AF_INET6 };
	struct sockaddr_in at4 = { .sin_family = AF_INET };

	if (ctx->sk->family == AF_INET) {
		at4.sin_addr.s_addr = source->word[3];
		return bpf_bind(ctx, (struct sockaddr *)&at4, sizeof(at4));
	}
	__builtin_memcpy(&at6.sin6_addr, source->word, sizeof(source->word));
	return bpf_bind(ctx, (struct sockaddr *)&at6, sizeof(at6));
}

/* Takes back a source that an earlier connect() of this socket was given. */
static __always_inline void release_source(struct bpf_sock_addr *ctx, struct captured *captured)
{
	struct address none = {};

	captured->dialled = 0;
	if (captured->bound && bind_source(ctx, &none) == 0)
		captured->bound = 0;
}

/* Nobody may go around the proxy because something could not be kept: seen by the program as a proxy that is not there. */
static __always_inline enum diversion refuse_diversion(struct bpf_sock_addr *ctx, const struct endpoint *to, u32 reason, int error)
{
	tell(reason, bpf_get_netns_cookie(ctx), protocol_of(ctx), to, 0);
	bpf_set_retval(error);
	return REFUSED;
}

static __always_inline u16 proxy_port(const struct pod *pod, enum way_out way)
{
	return way == WAY_OUTBOUND ? pod->outbound_port : way == WAY_INBOUND ? pod->inbound_port : pod->dns_port;
}

/* Whoever dials 0.0.0.0 or :: reaches the loopback. */
static __always_inline void mean_loopback(struct endpoint *to)
{
	if (address_is_unspecified(&to->address))
		set_loopback(to, address_is_v4(&to->address), __builtin_bswap16(to->port));
}

/* The rules' answer for this call. */
static __always_inline enum way_out ask_rules(struct bpf_sock_addr *ctx, const struct pod *pod, struct outgoing *out,
					      struct route **route)
{
	mean_loopback(&out->to);
	out->port = __builtin_bswap16(out->to.port);
	out->protocol = protocol_of(ctx);
	out->is_127_0_0_1 = is_loopback_host(&out->to.address);
	out->source = bound_source(ctx, address_is_v4(&out->to.address));
	*route = ask_route(ctx, pod, out);
	ask_owner(ctx, out);
	return way_of(pod, out);
}

/* What was dialled and what it was exchanged for, in the socket. */
static __always_inline struct captured *remember_diversion(struct bpf_sock_addr *ctx, const struct outgoing *out,
							   const struct endpoint *original, const struct endpoint *proxy)
{
	struct captured *captured = bpf_sk_storage_get(&captures, ctx->sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);

	if (captured) {
		captured->original = *original;
		captured->proxy = *proxy;
		captured->dialled = 1;
		captured->fresh = out->protocol == IPPROTO_TCP;
	}
	return captured;
}

/* Changes `to` into the proxy's address if the rules of the caller's pod say so. */
static __always_inline enum diversion divert_connect(struct bpf_sock_addr *ctx, const struct pod *pod, struct endpoint *to)
{
	struct captured *before = bpf_sk_storage_get(&captures, ctx->sk, NULL, 0), *captured;
	struct outgoing out = { .to = *to };
	struct endpoint proxy = {};
	struct route *route;
	enum way_out way;

	/* While programs move from one cgroup to another, a process in both meets both. */
	if (before && before->fresh && endpoint_equal(&before->proxy, to))
		return DIVERTED;
	if (before && before->dialled)
		release_source(ctx, before);
	way = ask_rules(ctx, pod, &out, &route);
	if (way == WAY_DIRECT) {
		count(REASON_NOT_CAPTURED);
		return NOT_DIVERTED;
	}
	if (way == WAY_OUTBOUND && is_led_around(&out.to, bpf_get_netns_cookie(ctx)))
		return NOT_DIVERTED;
	if (!route || route->flags & ROUTE_UNREACHABLE)
		return refuse_diversion(ctx, to, REASON_NO_ROUTE, -ENETUNREACH);
	set_loopback(&proxy, address_is_v4(&to->address), proxy_port(pod, way));
	captured = remember_diversion(ctx, &out, to, &proxy);
	if (!captured)
		return refuse_diversion(ctx, to, REASON_NO_STORAGE, -ECONNREFUSED);
	if (address_is_unspecified(&out.source) && !is_loopback_host(&route->source)) {
		captured->bound = bind_source(ctx, &route->source) == 0;
		if (!captured->bound)
			count(REASON_SOURCE_NOT_KEPT);
	}
	count(way == WAY_OUTBOUND ? REASON_CAPTURED_OUTBOUND : way == WAY_INBOUND ? REASON_CAPTURED_INBOUND : REASON_CAPTURED_DNS);
	*to = proxy;
	return DIVERTED;
}

/* A datagram that is for the pod's DNS proxy; its answer will have the name of the server that was asked. */
static __always_inline bool divert_datagram(struct bpf_sock_addr *ctx, const struct pod *pod, struct endpoint *to)
{
	struct outgoing out = { .to = *to };
	struct endpoint proxy = {};
	struct route *route;

	if (to->port != __builtin_bswap16(DNS_PORT) || ask_rules(ctx, pod, &out, &route) != WAY_DNS)
		return false;
	set_loopback(&proxy, address_is_v4(&to->address), pod->dns_port);
	expect_replies(ctx);
	keep_reply(bpf_get_socket_cookie(ctx), &proxy, to, true);
	count(REASON_CAPTURED_DNS);
	*to = proxy;
	return true;
}
