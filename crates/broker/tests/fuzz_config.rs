//! The fuzz target `config`, briefly and always alike.

use crate::config;
use crate::repeat;

#[test]
fn any_text() {
    repeat::repeat(50_000, 60, config::run);
}
