//! Small programs to measure with, where no tool of others does the same. They know nothing of Sidestep: each is an
//! ordinary program that runs the same on the kernel and under `sidestep run`.

mod args;
mod clock;
mod cpu;
mod dial;
mod epoll;
mod idle;
mod net;
mod notours;
mod pods;

use args::Args;

const HELP: &str = "\
sidestep-bench: small programs to measure local TCP with

usage: sidestep-bench PROGRAM [--OPTION VALUE]...

  idle       opens many connections, exchanges messages on each, then sits still
             --role server|client  --port N  --conns 10000 (both)
             client: --rounds 64; prints `ready`, stays idle until its standard input ends
  notours    calls on descriptors that are no TCP connection
             --on pipe|file|unix|udp|epoll  --calls 1000000
  pods       answers requests in many network namespaces (needs root); prints `ready`, runs until it is ended
             --port PORT  --namespaces FILE,FILE,...
  dial       reads commands from its standard input and answers each with a line of JSON
             --watch PID,PID,...  processes whose CPU time counts, too
             short SECONDS TARGET,...          new connections, one request each, ended by a reset
             keep SECONDS TARGET,...           requests on one connection
             await SECONDS NUMBER TARGET,...   new connections until the pod of that number answers

example:
  sidestep-bench notours --on unix --calls 1000000
";

fn main() {
    let mut words = std::env::args().skip(1);
    let program = words.next().unwrap_or_default();
    if matches!(program.as_str(), "" | "-h" | "--help" | "help") {
        print!("{HELP}");
        std::process::exit(if program.is_empty() { 2 } else { 0 });
    }
    if let Err(why) = Args::parse(words).and_then(|args| dispatch(&program, &args)) {
        eprintln!("sidestep-bench {program}: {why}");
        std::process::exit(1);
    }
}

fn dispatch(program: &str, args: &Args) -> Result<(), String> {
    let run: fn(&Args) -> Result<(), String> = match program {
        "idle" => idle::run,
        "notours" => notours::run,
        "pods" => pods::run,
        "dial" => dial::run,
        _ => return Err("no such program; `sidestep-bench --help` lists them".into()),
    };
    run(args)
}
