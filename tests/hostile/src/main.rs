//! A hostile peer: a process that joins by the rules and then writes random and crafted values into every shared word
//! and message, against programs that run under Sidestep as they always do.

mod attack;
mod disguise;
mod lies;
mod mischief;
mod peers;
mod rounds;
mod stage;
mod watch;

#[path = "../../../crates/broker/tests/common/mod.rs"]
mod common;

use clap::{Parser, Subcommand};
use peers::Waiting;
use std::process::ExitCode;

const AFTER: &str = "\
Each round an attacker joins the broker, is paired with each victim (echo servers that block, poll and use epoll, and a
client), exchanges bytes by ring until the victim really is in it, and then lies for a while. Then it is silent for a
second. Meanwhile and afterwards: every victim lives, answers honest connections byte by byte, uses no processor time
while nobody wants anything, gives back no byte from beside its ring, and keeps no descriptor or mapping.

Examples:
  hostile                              20 seconds, as in `make test`
  hostile --seconds 600                ten minutes
  hostile --seconds 5 --seed 7         the attacks of seed 7 again
  hostile --verbose --seconds 5        print every attack";

/// Attack programs under Sidestep with a peer that sends invalid values in shared memory and to the broker
#[derive(Parser)]
#[command(name = "hostile", after_help = AFTER)]
struct Args {
    /// Seed for choosing attacks [default: from the clock]
    #[arg(long)]
    seed: Option<u64>,
    /// Duration in seconds
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Print every attack
    #[arg(long)]
    verbose: bool,
    /// Print the result as JSON too
    #[arg(long)]
    json: bool,
    #[command(subcommand)]
    role: Option<Role>,
}

/// The parts that this program plays itself.
#[derive(Subcommand)]
enum Role {
    #[command(hide = true)]
    Serve { waiting: Waiting },
    #[command(hide = true)]
    Ask {
        ports: Vec<u16>,
        #[arg(long)]
        hostile: Option<u16>,
    },
}

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match &args.role {
        Some(Role::Serve { waiting }) => peers::serve(*waiting),
        Some(Role::Ask { ports, hostile }) => peers::ask(ports, *hostile),
        None => return rounds::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hostile: {error}");
            ExitCode::FAILURE
        }
    }
}
