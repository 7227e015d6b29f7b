// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Packets to Services (ClusterIP, NodePort, external address) that arrive at the node's devices. The first packet of a
 * connection is given an entry of the kernel's own connection tracking, with a backend as its destination: all that follows,
 * both ways, is translated by the kernel, and so are ICMP errors, and packets that come in fragments. The program changes no
 * packet.
 */
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>

#include "conntrack.h"
#include "external_choice.h"
#include "isolated.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Verdicts of programs at tcx (6.6), and flags of bpf_fib_lookup() (6.7), which older headers do not have. */
#define NEXT -1
#define DROP_PACKET 2
#define SKIP_NEIGHBOUR (1 << 2)
#define FIND_SOURCE (1 << 4)

/* The backend of each conversation in datagrams: when the backend has gone, the conversation begins anew. */
struct conversation {
	struct endpoint client;
	struct endpoint frontend;
};

/* A number is given out again, then with another generation. */
struct numbered {
	u32 backend;
	u32 generation;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 16);
	__type(key, struct conversation);
	__type(value, struct numbered);
} external_conversations SEC(".maps");

static __always_inline int drop(u32 reason)
{
	count(reason);
	return DROP_PACKET;
}

static __always_inline void fill(struct bpf_sock_tuple *tuple, const struct arrival *arrival)
{
	if (arrival->v4) {
		tuple->ipv4.saddr = arrival->from.address.word[3];
		tuple->ipv4.daddr = arrival->to.address.word[3];
		tuple->ipv4.sport = arrival->from.port;
		tuple->ipv4.dport = arrival->to.port;
		return;
	}
	__builtin_memcpy(tuple->ipv6.saddr, &arrival->from.address, sizeof(arrival->from.address));
	__builtin_memcpy(tuple->ipv6.daddr, &arrival->to.address, sizeof(arrival->to.address));
	tuple->ipv6.sport = arrival->from.port;
	tuple->ipv6.dport = arrival->to.port;
}

static __always_inline union nf_inet_addr inet(const struct arrival *arrival, const struct address *address)
{
	union nf_inet_addr inet = {};

	if (arrival->v4)
		inet.all[0] = address->word[3];
	else
		__builtin_memcpy(inet.all, address->word, sizeof(inet.all));
	return inet;
}

static __always_inline struct address address_of(const struct arrival *arrival, const union nf_inet_addr *inet)
{
	struct address address = { .word = { inet->all[0], inet->all[1], inet->all[2], inet->all[3] } };

	if (arrival->v4)
		address_set_v4(&address, inet->all[0]);
	return address;
}

static __always_inline bool has_backend(const struct arrival *arrival, const struct frontend *frontend)
{
	struct conversation key = { .client = arrival->from, .frontend = arrival->to };
	struct numbered *with = bpf_map_lookup_elem(&external_conversations, &key);
	struct backend *backend = with ? bpf_map_lookup_elem(&backends, &with->backend) : NULL;

	return !with || (backend && backend->generation == with->generation && is_member(frontend->service, with->backend));
}

/*
 * Whether the backend's policies are about this client. To a client that is the backend itself they do not apply, and unless it is
 * masqueraded it would answer itself directly.
 */
static __always_inline bool is_judged(const struct arrival *arrival, const struct address *backend)
{
	return is_isolated(backend) && !address_equal(backend, &arrival->from.address);
}

/* Whether the backend takes this known client for the node, and has policies about clients meanwhile. */
static __always_inline bool hides_client(struct nf_conn *known, const struct arrival *arrival)
{
	struct address backend = address_of(arrival, &known->tuplehash[TRACKED_REPLY].tuple.src.u3);
	struct address answered = address_of(arrival, &known->tuplehash[TRACKED_REPLY].tuple.dst.u3);

	return !address_equal(&answered, &arrival->from.address) && is_judged(arrival, &backend);
}

/* What a packet to a Service is to the connection that conntrack knows. */
enum standing {
	BEGINS, /* another connection begins with this packet */
	GOES_ON,
	HIDDEN, /* a SYN that would reach a backend as the node's, which has policies about clients; the old connection is not its to end */
};

/*
 * A packet of the other direction is no client's: a pod's own flow may be masqueraded at a port that is a NodePort as well, and a forged
 * SYN must not end it.
 */
static __always_inline enum standing standing_in(struct nf_conn *known, const struct arrival *arrival,
						 const struct frontend *frontend, u8 direction)
{
	bool is_answer = direction == TRACKED_REPLY, translated = known->status & TRACKED_DNAT;
	u8 state;

	if (arrival->protocol == IPPROTO_UDP) {
		if (is_answer)
			return GOES_ON;
		return translated && has_backend(arrival, frontend) && !hides_client(known, arrival) ? GOES_ON : BEGINS;
	}
	if (!arrival->begins)
		return GOES_ON;
	state = known->proto.tcp.state;
	if (!(is_answer || translated) || state >= TRACKED_TIME_WAIT)
		return BEGINS;
	if (is_answer || !hides_client(known, arrival))
		return GOES_ON;
	return state < TRACKED_ESTABLISHED ? BEGINS : HIDDEN;
}

/* `direction`: which one of the connection's the packet has. */
static __always_inline struct nf_conn *look_up(struct __sk_buff *skb, const struct arrival *arrival, u8 *direction)
{
	struct nf_conn *known;
	struct bpf_ct_opts___ours options = { .netns_id = THIS_NETNS, .l4proto = arrival->protocol };
	struct bpf_sock_tuple tuple = {};

	fill(&tuple, arrival);
	if (arrival->v4)
		known = bpf_skb_ct_lookup(skb, &tuple, sizeof(tuple.ipv4), &options, sizeof(options));
	else
		known = bpf_skb_ct_lookup(skb, &tuple, sizeof(tuple.ipv6), &options, sizeof(options));
	*direction = options.dir;
	return known;
}

static __always_inline bool is_tracked(struct __sk_buff *skb, const struct arrival *arrival)
{
	u8 direction = 0;
	struct nf_conn *known = look_up(skb, arrival, &direction);

	if (known)
		bpf_ct_release(known);
	return known != NULL;
}

static __always_inline enum standing standing_of(struct __sk_buff *skb, const struct arrival *arrival,
						 const struct frontend *frontend)
{
	u8 direction = 0;
	struct nf_conn *known = look_up(skb, arrival, &direction);
	enum standing standing;

	if (!known)
		return BEGINS;
	standing = standing_in(known, arrival, frontend, direction);
	if (standing == BEGINS)
		bpf_ct_change_timeout(known, 0);
	bpf_ct_release(known);
	if (standing != BEGINS)
		return standing;
	/* A look-up frees what has expired. Another processor may have begun the new connection since. */
	return is_tracked(skb, arrival) ? GOES_ON : BEGINS;
}

/* Takes the source with which the node sends to the backend, if it is not the node itself. Negative: there is no way. */
static __always_inline int source_to(struct __sk_buff *skb, const struct arrival *arrival, const struct endpoint *backend,
				     struct address *source)
{
	struct bpf_fib_lookup path = {
		.ifindex = skb->ifindex,
		.l4_protocol = arrival->protocol,
		/* With 0 the look-up refuses a packet that its device cannot take in one piece. The kernel deals with those itself. */
		.tot_len = 1,
	};
	long found;

	if (arrival->v4) {
		path.family = AF_INET;
		path.ipv4_src = arrival->from.address.word[3];
		path.ipv4_dst = backend->address.word[3];
	} else {
		path.family = AF_INET6;
		__builtin_memcpy(path.ipv6_src, &arrival->from.address, sizeof(path.ipv6_src));
		__builtin_memcpy(path.ipv6_dst, &backend->address, sizeof(path.ipv6_dst));
	}
	found = bpf_fib_lookup(skb, &path, sizeof(path), FIND_SOURCE | SKIP_NEIGHBOUR);
	/* The backend is the node itself, or no route leads to it. */
	if (found == BPF_FIB_LKUP_RET_NOT_FWDED)
		return is_in_table(&node_addresses, &backend->address) ? 0 : -1;
	if (found != BPF_FIB_LKUP_RET_SUCCESS)
		return -1;
	if (arrival->v4)
		address_set_v4(source, path.ipv4_src);
	else
		__builtin_memcpy(source, path.ipv6_src, sizeof(*source));
	return 1;
}

/* Gives the connection an entry. False: another processor has, or there is no room. */
static __always_inline bool track(struct __sk_buff *skb, const struct arrival *arrival, const struct endpoint *backend,
				  const struct address *source)
{
	struct bpf_ct_opts___ours options = { .netns_id = THIS_NETNS, .l4proto = arrival->protocol };
	union nf_inet_addr to = inet(arrival, &backend->address), from = inet(arrival, source);
	struct bpf_sock_tuple tuple = {};
	struct nf_conn___init *fresh;
	struct nf_conn *known;
	bool done;

	fill(&tuple, arrival);
	if (arrival->v4)
		fresh = bpf_skb_ct_alloc(skb, &tuple, sizeof(tuple.ipv4), &options, sizeof(options));
	else
		fresh = bpf_skb_ct_alloc(skb, &tuple, sizeof(tuple.ipv6), &options, sizeof(options));
	if (!fresh)
		return false;
	/* Also the client's own address is given: its port may be in use towards this backend, by way of another frontend, and is changed. */
	done = !bpf_ct_set_nat_info(fresh, &to, __builtin_bswap16(backend->port), MANIP_DESTINATION) &&
	       !bpf_ct_set_nat_info(fresh, &from, 0, MANIP_SOURCE);
	known = bpf_ct_insert_entry(fresh);
	if (!known)
		return false;
	if (!done)
		bpf_ct_change_timeout(known, 0);
	bpf_ct_release(known);
	return done;
}

/*
 * Without an endpoint. A rule of the agent's nftables table answers a packet with this mark by ICMP's "port unreachable", within
 * the kernel's limits of such answers; the rule lets no marked packet pass. If other nodes have endpoints the packet is dropped,
 * since a load balancer is to try those.
 */
static __always_inline int refuse_packet(struct __sk_buff *skb, const struct frontend *frontend)
{
	if (frontend->count || frontend->flags & ELSEWHERE)
		return drop(REASON_PACKET_WITHOUT_ENDPOINT);
	skb->mark = REFUSED_MARK;
	count(REASON_PACKET_REFUSED);
	return NEXT;
}

static __always_inline int begin(struct __sk_buff *skb, const struct arrival *arrival, const struct frontend *frontend)
{
	struct conversation key = { .client = arrival->from, .frontend = arrival->to };
	u32 index = external_backend(frontend, &arrival->from.address);
	struct backend *backend = index ? bpf_map_lookup_elem(&backends, &index) : NULL;
	struct numbered chosen = { .backend = index };
	struct address source = {};
	struct endpoint to;
	int masquerade = 0;

	if (!backend)
		return refuse_packet(skb, frontend);
	chosen.generation = backend->generation;
	to = backend->endpoint;
	if (address_equal(&to.address, &arrival->from.address) ||
	    (frontend->flags & MASQUERADE && !is_judged(arrival, &to.address)))
		masquerade = source_to(skb, arrival, &to, &source);
	if (masquerade < 0)
		return drop(REASON_PACKET_NOT_TRACKED);
	/* A client may send two datagrams at once, as for both families of a name: the second one goes where the first has gone. */
	if (!track(skb, arrival, &to, masquerade ? &source : &arrival->from.address))
		return is_tracked(skb, arrival) ? NEXT : drop(REASON_PACKET_NOT_TRACKED);
	if (arrival->protocol == IPPROTO_UDP)
		bpf_map_update_elem(&external_conversations, &key, &chosen, BPF_ANY);
	__sync_fetch_and_add(&backend->picks, 1);
	count(REASON_PACKET_TRANSLATED);
	return NEXT;
}

#define VLAN_ID 0xfff

/*
 * Whether the packet is of another network than the device's own, by its tag. If the node takes part in that network, the packet comes
 * to a device of its own there, without the tag. If not, the network's addresses are not those of Services, though they may be equal.
 */
static __always_inline bool is_of_vlan(const struct __sk_buff *skb)
{
	return skb->vlan_present && skb->vlan_tci & VLAN_ID;
}

SEC("tcx/ingress")
int external(struct __sk_buff *skb)
{
	struct arrival arrival = {};
	struct frontend frontend = {};
	enum standing standing;

	if (is_of_vlan(skb) || !read_arrival(skb, &arrival) || !find_external(&arrival, &frontend))
		return NEXT;
	standing = standing_of(skb, &arrival, &frontend);
	if (standing == HIDDEN)
		return drop(REASON_PACKET_NOT_TRACKED);
	if (standing == GOES_ON || arrival.resets)
		return NEXT;
	/* As with kube-proxy, ranges are for new connections: those that exist outlive a change. */
	if (!may_use(&frontend, &arrival.from.address))
		return drop(REASON_PACKET_NOT_IN_RANGES);
	return begin(skb, &arrival, &frontend);
}
