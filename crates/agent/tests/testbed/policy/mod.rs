//! Policies, as the agent enforces them.

mod armed;
mod around;
mod counted;
mod enforced;
mod example;
mod explained;
mod lives;
mod outside;
mod sources;
pub mod world;
