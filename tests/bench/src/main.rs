//! Small programs to measure with, where no tool of others does the same. They know nothing of Sidestep: each is an
//! ordinary program that runs the same on the kernel and under `sidestep run`.

mod args;
mod client;
mod dial;
mod epoll;
mod found;
mod idle;
mod net;
mod notours;
mod pods;
mod services;
mod step;

use args::Args;

const HELP: &str = "\
sidestep-bench: small programs that measure local TCP

usage: sidestep-bench PROGRAM [--OPTION VALUE]...

  idle       opens many connections, exchanges messages on each, then stays idle
             --role server|client  --host 127.0.0.1  --port N  --conns 10000 (both)
             client: --rounds 64  --begin SECONDS (for how long connections begin, one group after the other)
             --every SECONDS (then a message on each connection so often, until a line comes on standard input)
             prints `ready`, then idle until its standard input ends
  notours    calls on descriptors that are not TCP connections
             --on pipe|file|unix|udp|epoll  --calls 1000000
  pods       answers requests at many addresses, each with its number; prints `ready`, runs until it is ended
             --at ADDRESS:PORT,...
  dial       connections to pods or a Service, one after another
             --to ADDRESS:PORT,...  --time connect|connection|request  --seconds 1
  reach      checks that exactly this many pods answer at an address
             --to ADDRESS:PORT,...  --pods N
  appear     how long a command takes to set up a Service; --stop removes it
             --to ADDRESS:PORT  --start COMMAND  --stop COMMAND  --seconds 1  --limit 120
  change     how long a command takes to replace one pod of a Service by another, and back
             --to ADDRESS:PORT  --there COMMAND  --back COMMAND  --pods NEW,OLD (12,11)  --idle 0  --seconds 1  --limit 120
  services   prints a cluster's Services in the format of another program
             --count N  --whole all|dialled (which of them have endpoints)  --change none|there|back (the change that is written)
             --as iptables|nftables|ipvs|addresses|object|slice, or --as objects --into DIRECTORY
  services-api  an API server of such a cluster, with what kube-proxy needs
             --count N  --port PORT  --node ADDRESS

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
        "reach" => step::reach,
        "appear" => step::appear,
        "change" => step::change,
        "services" => services::run,
        "services-api" => services::api::run,
        _ => return Err("no such program; `sidestep-bench --help` lists them".into()),
    };
    run(args)
}
