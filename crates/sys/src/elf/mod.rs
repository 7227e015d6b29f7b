//! Symbols of the objects that the dynamic linker has loaded, found without asking it: dlsym(3) is in libdl for glibc
//! before 2.34, may be replaced by the program, and takes locks.

mod name;
mod object;

pub use name::Name;
pub use object::Object;
