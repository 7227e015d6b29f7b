//! Lists the cases, runs one of them, or is the process at the other end of one.

use sidestep_posix::{bare, cases, early, puppet};

const HELP: &str = "\
posix-cases: single cases of the socket tests (posix-run runs them all)

  posix-cases list        names, and whether bytes must go by ring when preloaded
  posix-cases run NAME    run one case; exit code 0 if every assertion held
  posix-cases peer …      the other end of a case's connection; cases start it themselves
  posix-cases bare PORT   the same, for the case of a program without standard descriptors
  posix-cases early ADDRESS PORT  the same, for the case of a program that connects before main

A case passes on plain kernel TCP. To see it with Sidestep at the first byte:
  SIDESTEP_UPGRADE_AFTER=0ops sidestep run -- posix-cases run NAME
";

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["list"] => cases::all().for_each(|c| println!("{:50} {:?}", c.name, c.ring)),
        ["run", name] => run(name),
        ["peer", ..] => puppet::run(&args[1..]),
        ["bare", port] => bare::run(port),
        ["early", ..] => early::run(),
        ["help" | "--help" | "-h"] => print!("{HELP}"),
        _ => {
            eprint!("{HELP}");
            std::process::exit(2);
        }
    }
}

fn run(name: &str) {
    match cases::all().find(|c| c.name == name) {
        Some(case) => (case.run)(),
        None => {
            eprintln!("posix-cases: no case is called '{name}'; `posix-cases list` shows them");
            std::process::exit(2);
        }
    }
}
