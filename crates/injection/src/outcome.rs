//! What becomes of a container of an enrolled pod. The names are stable: metrics and events have them.

use crate::reason::Reason;

/// What has become of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It has the library.
    Injected,
    /// It was left as it is.
    LeftOut(Reason),
    /// It has the library, which has no effect in its entrypoint.
    NoEffect(Reason),
    /// It has the library, and nobody knows whether it has an effect.
    Unknown(Reason),
}

impl Outcome {
    /// The stable name.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Injected => "injected",
            Outcome::LeftOut(_) => "left-out",
            Outcome::NoEffect(_) => "no-effect",
            Outcome::Unknown(_) => "unknown",
        }
    }

    /// Why not, if so.
    pub fn reason(self) -> Option<Reason> {
        match self {
            Outcome::Injected => None,
            Outcome::LeftOut(reason) | Outcome::NoEffect(reason) | Outcome::Unknown(reason) => Some(reason),
        }
    }
}
