//! The programs that Sidestep loads into the kernel: C in this directory, compiled at build, and what is needed to load
//! them. What their maps hold is said in `services.h`; who fills them is the crate `sidestep-ebpf`.

/// Service addresses are exchanged for backends at the socket.
pub mod services {
    // Generated: its author answers for its unsafe blocks.
    #![allow(clippy::undocumented_unsafe_blocks)]
    include!(concat!(env!("OUT_DIR"), "/services.skel.rs"));
}

/// Descriptors of connected UDP sockets whose backend has gone are found.
pub mod stale {
    // Generated, as above.
    #![allow(clippy::undocumented_unsafe_blocks)]
    include!(concat!(env!("OUT_DIR"), "/stale.skel.rs"));
}

/// Connected UDP sockets whose backend has gone, and that no other backend could be had for, are aborted.
pub mod reclaim {
    // Generated, as above.
    #![allow(clippy::undocumented_unsafe_blocks)]
    include!(concat!(env!("OUT_DIR"), "/reclaim.skel.rs"));
}

/// Inbound connections of one pod are given to its proxy.
pub mod inbound {
    // Generated, as above.
    #![allow(clippy::undocumented_unsafe_blocks)]
    include!(concat!(env!("OUT_DIR"), "/inbound.skel.rs"));
}

/// Proxies that listened before their pod was captured are found.
pub mod listening {
    // Generated, as above.
    #![allow(clippy::undocumented_unsafe_blocks)]
    include!(concat!(env!("OUT_DIR"), "/listening.skel.rs"));
}

/// Packets that neither a call nor the look-up of listeners has judged.
pub mod packets {
    // Generated, as above.
    #![allow(clippy::undocumented_unsafe_blocks)]
    include!(concat!(env!("OUT_DIR"), "/packets.skel.rs"));
}

/// Two local TCP sockets are joined: what one writes is put into the other's queue.
pub mod splice {
    // Generated, as above.
    #![allow(clippy::undocumented_unsafe_blocks)]
    include!(concat!(env!("OUT_DIR"), "/splice.skel.rs"));
}

/// Connections that last are counted before they end.
pub mod watching {
    // Generated, as above.
    #![allow(clippy::undocumented_unsafe_blocks)]
    include!(concat!(env!("OUT_DIR"), "/watching.skel.rs"));
}
