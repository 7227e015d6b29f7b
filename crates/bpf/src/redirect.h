/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Redirects connect() and sendmsg() of a pod to its proxy where the pod's rules say so; the proxy can ask what was dialled. */
#pragma once

#include "bypass.h"
#include "context.h"
#include "datagram.h"
#include "outbound.h"
#include "pending.h"
#include "mptcp.h"

/* The outcome for a call. */
enum redirect {
	NOT_REDIRECTED,
	REDIRECTED,
	REFUSED,
};

static __always_inline struct owner owner_of_caller(struct bpf_sock_addr *ctx)
{
	struct bpf_sock_addr_kern *context;

	if (!may_read_kernel) {
		u64 current = bpf_get_current_uid_gid();

		return (struct owner){ .uid = (u32)current, .gid = current >> 32 };
	}
	context = bpf_cast_to_kern_ctx(ctx);
	return owner_of(BPF_CORE_READ(context, sk));
}

/* The address that the program has bound to; unspecified if none. */
static __always_inline struct address bound_source(const struct bpf_sock_addr *ctx, bool v4)
{
	const volatile struct bpf_sock *sock = ctx->sk;
	struct address source = ADDRESS_IN(sock, src);

	/* An unbound IPv6 socket may dial an IPv4 address. */
	if (v4 && !source.word[3])
		address_set_v4(&source, 0);
	return source;
}

/* fe80::/10: connect() binds the socket to the interface that its address names. */
static __always_inline bool is_link_local(const struct address *a)
{
	return (a->word[0] & __builtin_bswap32(0xffc00000)) == __builtin_bswap32(0xfe800000);
}

static __always_inline struct route *ask_route(const struct bpf_sock_addr *ctx, const struct pod *pod, struct outgoing *out)
{
	struct route *route = find_range(pod->network, KIND_ROUTE, &out->to.address);
	u32 bound = ((const volatile struct bpf_sock *)ctx->sk)->bound_dev_if;
	bool is_local = route && route->flags & ROUTE_LOCAL;

	/* Packets to the pod itself go over lo, even from a socket that is bound to another interface. */
	out->is_lo = is_local || bound == LOOPBACK_INTERFACE;
	out->is_excluded = bound && !is_local ? in_set(pod->network, KIND_EXCLUDED_INTERFACE, bound)
					      : route && route->flags & ROUTE_EXCLUDED;
	out->has_device = (bound && bound != LOOPBACK_INTERFACE) || (!is_local && is_link_local(&out->to.address));
	return route;
}

/*
 * The errno of the missing route; 0 if there is a route. The DNS proxy listens on the loopback, which a socket that is bound to
 * another interface cannot reach.
 */
static __always_inline int route_error(const struct route *route, const struct outgoing *out, enum out_target target)
{
	if (!route || (target == TARGET_DNS && out->has_device))
		return ENETUNREACH;
	return route->flags >> ROUTE_ERROR_SHIFT;
}

/* 127.0.0.1 or ::1, as iptables' REDIRECT chooses for locally generated packets. */
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

/* Binds the source address that suits the dialled destination, for the proxy to see: connect() would choose a loopback address. */
VERIFIED_ONCE int bind_source(struct bpf_sock_addr *ctx, const struct address *source)
{
	struct sockaddr_in6 at6 = { .sin6_family = AF_INET6 };
	struct sockaddr_in at4 = { .sin_family = AF_INET };

	if (!source)
		return -EADDRNOTAVAIL;
	if (ctx->sk->family == AF_INET) {
		at4.sin_addr.s_addr = source->word[3];
		return bpf_bind(ctx, (struct sockaddr *)&at4, sizeof(at4));
	}
	__builtin_memcpy(&at6.sin6_addr, source->word, sizeof(source->word));
	return bpf_bind(ctx, (struct sockaddr *)&at6, sizeof(at6));
}

/* Whether the proxy listens at this address as well. */
VERIFIED_ONCE bool proxy_listens_at(struct bpf_sock_addr *ctx, const struct pod *pod, const struct endpoint *at)
{
	struct bpf_sock_tuple tuple = {};
	struct bpf_sock *listener;
	bool is_its = true;
	u32 size;

	if (!pod || !at)
		return false;
	if (address_is_v4(&at->address)) {
		tuple.ipv4.saddr = tuple.ipv4.daddr = at->address.word[3];
		tuple.ipv4.dport = at->port;
		size = sizeof(tuple.ipv4);
	} else {
		__builtin_memcpy(tuple.ipv6.saddr, at->address.word, sizeof(tuple.ipv6.saddr));
		__builtin_memcpy(tuple.ipv6.daddr, at->address.word, sizeof(tuple.ipv6.daddr));
		tuple.ipv6.dport = at->port;
		size = sizeof(tuple.ipv6);
	}
	listener = bpf_sk_lookup_tcp(ctx, &tuple, size, BPF_F_CURRENT_NETNS, 0);
	if (!listener)
		return false;
	if (may_read_kernel) {
		struct tcp_sock *sock = bpf_skc_to_tcp_sock(listener);

		is_its = sock && is_proxys_listener(pod, (struct sock *)sock);
	}
	bpf_sk_release(listener);
	return is_its;
}

/* Unbinds the source address that an earlier connect() of this socket was given. */
static __always_inline void release_source(struct bpf_sock_addr *ctx, struct captured *captured)
{
	struct address none = {};

	captured->dialled = 0;
	if (captured->bound && bind_source(ctx, &none) == 0)
		captured->bound = 0;
}

/* Refuses a call whose redirect could not be stored: it must not go around the proxy. The program sees an unreachable proxy. */
static __always_inline enum redirect refuse_redirect(struct bpf_sock_addr *ctx, const struct endpoint *to, u32 reason, int error)
{
	emit_event(reason, bpf_get_netns_cookie(ctx), protocol_of(ctx), to, 0);
	bpf_set_retval(error);
	return REFUSED;
}

static __always_inline u16 proxy_port(const struct pod *pod, enum out_target target)
{
	/* All three are read: choosing an offset is pointer arithmetic for which the verifier demands CAP_PERFMON. */
	const volatile struct pod *its = pod;
	u16 outbound = its->outbound_port, inbound = its->inbound_port, dns = its->dns_port;

	return target == TARGET_OUTBOUND ? outbound : target == TARGET_INBOUND ? inbound : dns;
}

/* 0.0.0.0 means the address that the socket is bound to, else the loopback; :: always means the loopback. */
static __always_inline void mean_own(struct endpoint *to, const struct address *bound)
{
	bool v4 = address_is_v4(&to->address), bound_v4 = address_is_v4(bound);

	if (!address_is_unspecified(&to->address))
		return;
	if (v4 && bound_v4 && !address_is_unspecified(bound))
		to->address = *bound;
	else
		set_loopback(to, v4 || bound_v4, __builtin_bswap16(to->port));
}

/* Evaluates the pod's rules for this call. */
static __always_inline enum out_target ask_rules(struct bpf_sock_addr *ctx, const struct pod *pod, struct outgoing *out,
					      struct route **route)
{
	out->source = bound_source(ctx, address_is_v4(&out->to.address));
	out->is_bound = !address_is_unspecified(&out->source);
	mean_own(&out->to, &out->source);
	out->port = __builtin_bswap16(out->to.port);
	out->protocol = protocol_of(ctx);
	out->is_127_0_0_1 = is_loopback_host(&out->to.address);
	*route = ask_route(ctx, pod, out);
	if (!out->is_bound && *route)
		out->source = (*route)->source;
	out->owner = owner_of_caller(ctx);
	return target_of(pod, out);
}

/* Stores in the socket what was dialled and where it was redirected to. */
static __always_inline struct captured *store_redirect(struct bpf_sock_addr *ctx, const struct outgoing *out,
							   const struct endpoint *proxy)
{
	struct captured *captured = bpf_sk_storage_get(&captures, ctx->sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);

	if (captured) {
		captured->original = out->to;
		captured->proxy = *proxy;
		captured->dialled = 1;
		captured->fresh = out->protocol == IPPROTO_TCP;
	}
	return captured;
}

/*
 * Whether packets that the kernel sends without a socket would not find a way back. Between an IPv6 address of the pod and ::1
 * the kernel looks for ::1 on the interface that has the other address. The proxy's last ACK would be lost, and its
 * half-closed connection would block the next one from the same port.
 */
static __always_inline bool has_no_return_route(const struct outgoing *out)
{
	return out->protocol == IPPROTO_TCP && !address_is_v4(&out->source);
}

/*
 * Lets the proxy see the source address that suits the dialled destination, not a loopback one. A socket whose port is bound
 * cannot be given an address any more; but the kernel chooses the right one if the proxy is dialled at the pod's own address. A
 * socket that is bound to an interface reaches no address of another one, lo's included. False: the source is not kept.
 */
static __always_inline bool keep_source(struct bpf_sock_addr *ctx, const struct pod *pod, const struct outgoing *out,
					enum out_target target, struct endpoint *proxy, struct captured *captured)
{
	bool may_bind = !out->is_bound && !ctx->sk->src_port && !has_no_return_route(out);
	struct endpoint own = { .address = out->source, .port = proxy->port };

	if (is_loopback_host(&out->source))
		return true;
	/* The DNS proxy listens only on the loopback. */
	if (target != TARGET_DNS && (out->has_device || (!out->is_bound && !may_bind) || has_no_return_route(out)) &&
	    proxy_listens_at(ctx, pod, &own)) {
		captured->proxy = *proxy = own;
		return true;
	}
	if (may_bind)
		captured->bound = bind_source(ctx, &out->source) == 0;
	return out->is_bound || captured->bound;
}

/* Whether a connection dials the proxy's own ports. Even unredirected it needs a pending entry, or from_inside() drops it. */
static __always_inline bool is_for_proxy_itself(const struct pod *pod, const struct outgoing *out)
{
	return out->protocol == IPPROTO_TCP && out->is_lo && (out->port == pod->outbound_port || out->port == pod->inbound_port);
}

/* Changes `to` into the proxy's address if the rules of the caller's pod say so. */
VERIFIED_ONCE enum redirect redirect_connect(struct bpf_sock_addr *ctx, const struct pod *pod, struct endpoint *to)
{
	struct captured *before = bpf_sk_storage_get(&captures, ctx->sk, NULL, 0), *captured;
	struct endpoint proxy = {};
	struct outgoing out = {};
	struct route *route;
	enum out_target target;

	if (!pod || !to)
		return REFUSED;
	out.to = *to;
	/* While programs move between cgroups, a process can be in both the old and the new one, and this hook runs twice. */
	if (before && before->fresh && endpoint_equal(&before->proxy, to))
		return REDIRECTED;
	if (before)
		remove_own_pending(bpf_get_netns_cookie(ctx), before);
	if (before && before->dialled)
		release_source(ctx, before);
	target = ask_rules(ctx, pod, &out, &route);
	if (target == TARGET_DIRECT) {
		count(REASON_NOT_CAPTURED);
		if (is_for_proxy_itself(pod, &out))
			store_redirect(ctx, &out, &out.to);
		return NOT_REDIRECTED;
	}
	if (target == TARGET_OUTBOUND && bypasses_outbound(&out.to, bpf_get_netns_cookie(ctx)))
		return NOT_REDIRECTED;
	if (route_error(route, &out, target))
		return refuse_redirect(ctx, to, REASON_NO_ROUTE, -route_error(route, &out, target));
	if (out.protocol == IPPROTO_TCP && !may_have_pending(bpf_get_netns_cookie(ctx)))
		return refuse_redirect(ctx, to, REASON_TOO_MANY_PENDING, -EADDRNOTAVAIL);
	set_loopback(&proxy, address_is_v4(&to->address), proxy_port(pod, target));
	captured = store_redirect(ctx, &out, &proxy);
	if (!captured)
		return refuse_redirect(ctx, to, REASON_NO_STORAGE, -ECONNREFUSED);
	if (!keep_source(ctx, pod, &out, target, &proxy, captured))
		count(REASON_SOURCE_NOT_KEPT);
	copy_to_mptcp(ctx->sk, captured);
	count(target == TARGET_OUTBOUND ? REASON_CAPTURED_OUTBOUND : target == TARGET_INBOUND ? REASON_CAPTURED_INBOUND : REASON_CAPTURED_DNS);
	*to = proxy;
	return REDIRECTED;
}

/*
 * Redirects a datagram to the pod's DNS proxy. The answer will carry the address of the server that was asked. `from` is set to
 * the source that the proxy is to see, if the program has bound none.
 */
VERIFIED_ONCE enum redirect redirect_datagram(struct bpf_sock_addr *ctx, const struct pod *pod, struct endpoint *to,
					      struct address *from)
{
	struct endpoint proxy = {};
	struct outgoing out = {};
	struct route *route;

	if (!pod || !to || !from)
		return REFUSED;
	out.to = *to;
	if (to->port != __builtin_bswap16(DNS_PORT) || ask_rules(ctx, pod, &out, &route) != TARGET_DNS)
		return NOT_REDIRECTED;
	if (route_error(route, &out, TARGET_DNS))
		return refuse_redirect(ctx, to, REASON_NO_ROUTE, -route_error(route, &out, TARGET_DNS));
	set_loopback(&proxy, address_is_v4(&to->address), pod->dns_port);
	expect_replies(ctx);
	keep_reply(ctx, &proxy, &out.to, 0);
	count(REASON_CAPTURED_DNS);
	*to = proxy;
	if (!out.is_bound && !is_loopback_host(&out.source))
		*from = out.source;
	return REDIRECTED;
}
