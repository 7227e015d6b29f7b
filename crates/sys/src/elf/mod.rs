//! Look-up of symbols in loaded objects, without the dynamic linker's help: dlsym(3) is in libdl before glibc 2.34, may be
//! replaced by the program, and takes locks.

mod name;
mod object;

pub use name::Name;
pub use object::Object;
