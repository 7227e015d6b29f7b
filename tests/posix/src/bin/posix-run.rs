//! Runs every case in each mode; `posix-run --help` explains.

fn main() {
    std::process::exit(sidestep_posix::runner::main());
}
