//! By what the bytes of a program's TCP connections went.

use serde::{Deserialize, Serialize};

/// Bytes that a program received and sent, as it reported them when it ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carried {
    /// Bytes by ring.
    pub by_ring: u64,
    /// Bytes by kernel.
    pub by_kernel: u64,
}

impl Carried {
    /// The part of all bytes that went by ring; None: there were none.
    pub fn share(&self) -> Option<f64> {
        let all = self.by_ring as f64 + self.by_kernel as f64;
        (all > 0.0).then(|| self.by_ring as f64 / all)
    }
}

impl std::ops::AddAssign for Carried {
    fn add_assign(&mut self, other: Carried) {
        self.by_ring += other.by_ring;
        self.by_kernel += other.by_kernel;
    }
}
