//! The fuzz target `config`, briefly and always alike.

#[path = "../../../fuzz/bodies/config.rs"]
mod config;
#[path = "../../../fuzz/bodies/repeat.rs"]
mod repeat;

#[test]
fn any_text() {
    repeat::repeat(50_000, 60, config::run);
}
