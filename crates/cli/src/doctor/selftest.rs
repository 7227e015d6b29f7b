//! A trial: one process, preloaded, talks to itself over loopback TCP; its report says whether the bytes went by
//! ring. It goes through library, broker, versions, memory and doorbells at once.

use super::Check;
use crate::args::TALK_TO_YOURSELF;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Time for the upgrade, which needs a broker's answer. Answers take well under a millisecond.
const TALK: Duration = Duration::from_millis(200);

/// What is needed of a report line.
#[derive(Deserialize)]
struct Line {
    ring_tx: u64,
    #[serde(default)]
    reasons: BTreeMap<String, u64>,
}

pub(super) fn check() -> Check {
    let name = "trial";
    match trial() {
        Ok(Line { ring_tx, .. }) if ring_tx > 0 => Check::ok(name, format!("{ring_tx} bytes went by ring")),
        Ok(Line { reasons, .. }) if reasons.contains_key("version") => Check::fails(
            name,
            "library and broker speak different versions",
            "stop the old broker (it restarts on demand); library, sidestep and sidestepd must be of one release",
        ),
        Ok(Line { reasons, .. }) => {
            let why =
                reasons.keys().map(|r| format!("{r} ({})", crate::reasons::meaning(r))).collect::<Vec<_>>().join(", ");
            let found =
                format!("all bytes stayed on the kernel: {}", if why.is_empty() { "no reason given" } else { &why });
            Check::fails(
                name,
                found,
                "see LIMITATIONS.md for the reasons, or run with SIDESTEP_LOG=1 to see what the library says",
            )
        }
        Err(e) => Check::fails(name, e, "run a program with SIDESTEP_LOG=1 to see what the library says"),
    }
}

fn trial() -> Result<Line, String> {
    let own = std::env::current_exe().map_err(|e| format!("cannot find out where this program lies: {e}"))?;
    let report = std::env::temp_dir().join(format!("sidestep-doctor-{}.json", std::process::id()));
    let mut command = Command::new(&own);
    command.args(["run", "--upgrade-after", "0ops", "--report"]).arg(&report).arg("--").arg(&own).arg(TALK_TO_YOURSELF);
    let output = command.stdin(Stdio::null()).output().map_err(|e| format!("cannot run {}: {e}", own.display()))?;
    let text = std::fs::read_to_string(&report);
    // It may not be there, which the next lines tell.
    let _ = std::fs::remove_file(&report);
    if !output.status.success() {
        return Err(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim()));
    }
    let text = text.map_err(|_| "the library wrote no report: it was not loaded".to_string())?;
    serde_json::from_str(text.lines().last().unwrap_or_default())
        .map_err(|e| format!("the report is not readable: {e}"))
}

/// The hidden command: requests and answers on one connection, both ends here.
pub fn talk() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut client = TcpStream::connect(listener.local_addr()?)?;
    let (mut server, _) = listener.accept()?;
    let answering = std::thread::spawn(move || -> io::Result<()> {
        let mut message = [0; 64];
        while server.read_exact(&mut message).is_ok() {
            server.write_all(&message)?;
        }
        Ok(())
    });
    let (start, mut answer) = (Instant::now(), [0; 64]);
    while start.elapsed() < TALK {
        client.write_all(&[7; 64])?;
        client.read_exact(&mut answer)?;
    }
    drop(client);
    answering.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
}
