//! With whom pods may talk.

mod changes;
mod datagrams;
mod matrix;
mod probe;
mod random;
mod rules;
mod world;
