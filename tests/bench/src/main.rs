//! Small programs for `make bench`. They know nothing of Sidestep: each is an ordinary TCP
//! program that runs the same on the kernel and under `sidestep run`.
//!
//! A server prints `port N` as soon as it listens and ends by itself when its client is done;
//! whoever measures prints one JSON object as its last line.

mod answer;
mod args;
mod clock;
mod connect;
mod cpu;
mod dial;
mod epoll;
mod files;
mod idle;
mod load;
mod net;
mod notours;
mod onebyte;
mod pingpong;
mod pods;
mod spinlimit;
mod stream;
mod ticks;

use args::Args;

const HELP: &str = "\
sidestep-bench: small programs to measure local TCP with

usage: sidestep-bench PROGRAM [--OPTION VALUE]...

Two-ended programs run twice: first `--role server`, which prints `port N`,
then `--role client --port N`. All of them use 127.0.0.1 only.

  pingpong   one message to and fro, time of a round trip
             --mode epoll|blocking  --size 64  --seconds 1
  stream     one-way stream, bytes a second as the reader (server) sees them
             --write 131072  --seconds 1  --rate BYTES_A_SECOND (0: no limit)
  files      server sends a file again and again over one connection; time of a transfer
             server: --file PATH   client: --size BYTES  --seconds 1
             both: --sockbuf BYTES (SO_SNDBUF and SO_RCVBUF; 0: leave as it is)
  connect    new connection, one request, one answer, close
             --conns 4000 (both roles)
  idle       open many connections, exchange messages on each, then sit still
             --conns 10000 (both roles)  client: --rounds 64; prints `ready`,
             stays idle until its standard input ends
  notours    cost of a call on pipe, file, unix socket, UDP and epoll; no roles
             --seconds 1 (for all of them together)
  onebyte    reads a pipe byte by byte; no roles
             --reads 10000000
  pods       answers requests in many network namespaces (needs root); prints `ready`, runs until it is ended
             --port PORT  --namespaces FILE,FILE,...
  dial       reads commands from its standard input and answers each with a line of JSON
             --watch PID,PID,...  processes whose CPU time counts, too
             short SECONDS TARGET,...          new connections, one request each, ended by a reset
             keep SECONDS TARGET,...           requests on one connection
             await SECONDS NUMBER TARGET,...   new connections until the pod of that number answers
  load       HTTP load on kept connections, every latency counted from when the request was due; prints `ready`, begins
             with the next line of its standard input
             --target ADDRESS:PORT  --connections N  --seconds 1
             --rate REQUESTS_A_SECOND (0: as fast as they are answered)
             --requests N (on a connection, which then is given up for a new one; 0: any number)
  spinlimit  fastest possible round trip of 64 bytes between two cores; no roles
             --seconds 1

example:
  sidestep-bench pingpong --role server --mode epoll &       prints: port 41234
  sidestep-bench pingpong --role client --mode epoll --port 41234
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
        "pingpong" => pingpong::run,
        "stream" => stream::run,
        "files" => files::run,
        "connect" => connect::run,
        "idle" => idle::run,
        "load" => load::run,
        "notours" => notours::run,
        "onebyte" => onebyte::run,
        "pods" => pods::run,
        "dial" => dial::run,
        "spinlimit" => spinlimit::run,
        _ => return Err("no such program; `sidestep-bench --help` lists them".into()),
    };
    run(args)
}
