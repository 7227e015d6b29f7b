//! Capture: which connections of a pod go through its proxy. These are the rules of istio-iptables, applied to sockets, in the
//! same order; the first line that matches decides, once for each connection.
//!
//! ```text
//! what the pod sends                                                                                 goes to
//! OUTPUT  1   by an excluded interface                                                               its destination
//!         2   excludeOutboundPorts, TCP and UDP                                                      its destination
//!         3   within the pod, from 127.0.0.6 or ::6                                                  its destination
//!         4   for each user of the proxy, one after the other:
//!          a  TCP within the pod, not to 127.0.0.1 or ::1, by this user, not to the tunnel's port,
//!             and with DNS not to port 53                                                            15006
//!          b  within the pod, not by this user; with DNS only TCP, and not to port 53;
//!             not if includeOutboundIPRanges has a loopback range                                    its destination
//!          c  by this user                                                                           its destination
//!         5   for each group of the proxy as for a user, but a with port 53, too
//!         6   by an excluded group, or by none of the included ones                                  its destination
//!         7   port 53 of a captured name server, TCP and UDP                                         15053
//!         8   to 127.0.0.1 or ::1                                                                    its destination
//!         9   excludeOutboundIPRanges                                                                its destination
//!        10   TCP to includeOutboundPorts                                                            15001
//!        11   TCP to includeOutboundIPRanges                                                         15001
//!
//! TCP that the pod receives
//! INPUT   1   by a virtual interface: to includeOutboundIPRanges                                     15001
//!                                     to anything else                                               its destination
//!         2   by an excluded interface                                                               its destination
//!         3   to the tunnel's port                                                                   its destination
//!         4   includeInboundPorts: * but not excludeInboundPorts, or a list                          15006
//! ```
//!
//! "Within the pod" means by `lo`, to any address of the pod. What no line matches goes to its destination. An empty list means
//! none. UDP is captured by line 7 only. Both IP families are treated alike: an IPv4-mapped IPv6 address is IPv4, and the
//! loopback addresses of both families count as one.

pub mod annotations;
pub mod defaults;
pub mod flags;
pub mod inbound;
pub mod outbound;
pub mod pod;
pub mod probe;
pub mod rules;
pub mod sidecar;
pub mod tables;
mod text;
pub mod verdict;
