//! With whom pods may talk, as the agent keeps it.

mod armed;
mod around;
mod counted;
mod enforced;
mod example;
mod explained;
mod lives;
mod sources;
mod world;
