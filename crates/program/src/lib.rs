//! What a program's file says about preloading: its format, its loader, its rights.
//!
//! Files of container images are hostile: however large a file says that its parts are, little of it is read.

#![forbid(unsafe_code)]

mod elf;
mod rights;
mod script;

pub use elf::{Elf, ElfError, is_go, read};
pub use rights::{ExtraRights, extra_rights};
pub use script::interpreter_line;
