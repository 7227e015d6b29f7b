//! `sidestep bugreport`: one file with what a maintainer asks for first. Each part is bounded in time and size, and a part that
//! cannot be had is named with the reason.

mod archive;
mod gather;
mod machine;
mod parts;
mod processes;

use crate::Failure;
use crate::args::Bugreport;
use crate::output;
use archive::{Archive, Place};
use gather::Gathered;
use parts::Part;
use std::process::ExitCode;
use std::thread::spawn;
use std::time::{SystemTime, UNIX_EPOCH};

/// What is in none of the parts.
const LEFT_OUT: &str = "\
Left out: bytes of connections, environment variables, arguments of programs, configuration files, credentials, the host's name.";

pub fn bugreport(args: &Bugreport) -> Result<ExitCode, Failure> {
    let parts = parts::all(args);
    let name = format!("sidestep-bugreport-{}", seconds());
    let place = match &args.output {
        Some(path) if path.as_os_str() == "-" => Place::Stdout,
        Some(path) => Place::File(path.clone()),
        None => Place::File(format!("{name}.tar.gz").into()),
    };
    // What is said goes where the report does not.
    let say = |text: String| if place == Place::Stdout { output::aside(text) } else { output::print(text) };
    say(announcement(&parts));
    if args.list {
        return Ok(ExitCode::SUCCESS);
    }
    let mut archive = Archive::create(place.clone(), &name).map_err(Failure::new)?;
    let mut contents = format!("{}\n", announcement(&parts));
    // At once, so that the slowest part is all that has to be waited for.
    let running: Vec<_> = parts.into_iter().map(|part| (part.file, spawn(|| gather::gather(part.source)))).collect();
    for (file, part) in running {
        let gathered = part.join().unwrap_or_else(|_| Gathered::missing("it failed".into()));
        contents += &format!("{file}: {}\n", outcome(&gathered));
        if !gathered.bytes.is_empty() {
            archive.add(file, &gathered.bytes).map_err(Failure::new)?;
        }
    }
    archive.add("contents.txt", contents.as_bytes()).map_err(Failure::new)?;
    let written = archive.finish().map_err(Failure::new)?;
    let who = if place == Place::Stdout { "" } else { " (only its owner can read it)" };
    say(format!("\nWritten: {written}{who}. Look at it before you send it.\n"));
    Ok(ExitCode::SUCCESS)
}

/// Names the file. A clock before 1970 makes it 0.
fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn announcement(parts: &[Part]) -> String {
    let line = |part: &Part| format!("  {:<16} {}\n", part.file, part.about);
    format!("The report contains:\n{}{LEFT_OUT}\n", parts.iter().map(line).collect::<String>())
}

fn outcome(gathered: &Gathered) -> String {
    match &gathered.trouble {
        Some(trouble) => format!("{} bytes; {trouble}", gathered.bytes.len()),
        None => format!("{} bytes", gathered.bytes.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_is_missing_says_why() {
        let missing = Gathered { bytes: Vec::new(), trouble: Some("ended with exit status: 1: no agent".into()) };
        assert_eq!(outcome(&missing), "0 bytes; ended with exit status: 1: no agent");
    }
}
