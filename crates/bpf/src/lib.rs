//! The BPF programs of Sidestep: C sources in this directory, compiled at build time, and their skeletons. `services.h` describes
//! the maps; the crate `sidestep-ebpf` fills them.

/// Connects sockets to backends in place of Service addresses.
pub mod services {
    // Generated code, whose unsafe blocks carry no SAFETY comments.
    #![allow(clippy::undocumented_unsafe_blocks)]
    include!(concat!(env!("OUT_DIR"), "/services.skel.rs"));
}

/// Finds the descriptors of connected UDP sockets whose backend has gone.
pub mod stale {
    // Generated, as above.
    #![allow(clippy::undocumented_unsafe_blocks)]
    include!(concat!(env!("OUT_DIR"), "/stale.skel.rs"));
}

/// Aborts connected UDP sockets whose backend has gone and for which there is no other backend.
pub mod reclaim {
    // Generated, as above.
    #![allow(clippy::undocumented_unsafe_blocks)]
    include!(concat!(env!("OUT_DIR"), "/reclaim.skel.rs"));
}

/// Gives incoming connections of one pod to its proxy.
pub mod inbound {
    // Generated, as above.
    #![allow(clippy::undocumented_unsafe_blocks)]
    include!(concat!(env!("OUT_DIR"), "/inbound.skel.rs"));
}

/// Finds proxies that were listening before their pod was captured.
pub mod listening {
    // Generated, as above.
    #![allow(clippy::undocumented_unsafe_blocks)]
    include!(concat!(env!("OUT_DIR"), "/listening.skel.rs"));
}

/// Evaluates packets that neither a socket call nor the listener look-up has evaluated.
pub mod packets {
    // Generated, as above.
    #![allow(clippy::undocumented_unsafe_blocks)]
    include!(concat!(env!("OUT_DIR"), "/packets.skel.rs"));
}

/// Packets to Services that arrive at the node's devices.
pub mod external {
    // Generated, as above.
    #![allow(clippy::undocumented_unsafe_blocks)]
    include!(concat!(env!("OUT_DIR"), "/external.skel.rs"));
}

/// Joins two local TCP sockets: what one writes is put into the other's queue.
pub mod splice {
    // Generated, as above.
    #![allow(clippy::undocumented_unsafe_blocks)]
    include!(concat!(env!("OUT_DIR"), "/splice.skel.rs"));
}

/// Counts connections while they are still open.
pub mod watching {
    // Generated, as above.
    #![allow(clippy::undocumented_unsafe_blocks)]
    include!(concat!(env!("OUT_DIR"), "/watching.skel.rs"));
}

/// Redirects the frames of taken connections from a device to AF_XDP sockets.
pub mod device {
    // Generated, as above.
    #![allow(clippy::undocumented_unsafe_blocks)]
    include!(concat!(env!("OUT_DIR"), "/device.skel.rs"));
}
