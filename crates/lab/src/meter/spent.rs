//! CPU time.

use std::ops::{Add, Sub};

/// Total seconds of CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    pub user: f64,
    pub system: f64,
}

impl Spent {
    pub fn total(self) -> f64 {
        self.user + self.system
    }
}

impl Add for Spent {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self { user: self.user + other.user, system: self.system + other.system }
    }
}

/// At least zero: an ended process takes with it what was read before.
impl Sub for Spent {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self { user: (self.user - other.user).max(0.0), system: (self.system - other.system).max(0.0) }
    }
}
