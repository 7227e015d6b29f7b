//! Several clients at once against one server, with Sidestep as on the kernel. `crowd --help` explains.

mod campaign;
mod client;
mod content;
mod driven;
mod hand;
mod load;
mod modes;
mod note;
mod options;
mod plan;
mod receive;
mod run;
mod send;
mod server;
mod shared;
mod side;
mod threads;
mod wait;
mod ways;

use options::{Options, Role};

fn main() {
    let done = match Options::from_args(std::env::args().skip(1)) {
        Ok(options) if options.help => {
            print!("{}", options::HELP);
            Ok(0)
        }
        Ok(options) => match &options.role {
            Role::Campaign => campaign::run(&options),
            Role::Server => as_role(&options, || server::run(&options.run())),
            Role::Client { number, port } => as_role(&options, || client::run(&options.run(), *number, *port)),
        },
        Err(what) => Err(what),
    };
    std::process::exit(done.unwrap_or_else(|what| {
        eprintln!("crowd: {what}");
        2
    }));
}

/// In a process of a run: a broken promise or a hang ends it.
fn as_role(options: &Options, work: impl FnOnce()) -> Result<i32, String> {
    note::watch(options.deadline);
    // SAFETY: no handler; a peer that has gone is told by an errno.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    work();
    Ok(0)
}
