//! Devices that are ends of veth pairs, in network namespaces without a route outside. Needs root.

mod devices;
mod figures;
mod frames;
mod inject;
mod packet_socket;
mod paths;
mod program;
mod receive;
mod rights;
mod send;
mod takeover;
mod wire;
