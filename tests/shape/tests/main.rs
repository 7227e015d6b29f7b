//! All integration tests of this crate, linked once.

mod calls_doc;
mod dependencies;
mod documents;
mod errors;
mod layers;
mod linked;
mod modules;
mod numbers;
mod security;
mod shared_tables;
mod shared_words;
mod sizes;
mod symbols;
mod units;
