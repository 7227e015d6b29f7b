//! Captured pods whose documents and namespaces come and go.

mod answers;
mod ends;
mod faults;
mod files;
mod load;
mod namespaces;
mod old_kernels;
mod scale;
mod sources;
mod validate;
