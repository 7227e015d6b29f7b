//! The trial: one preloaded process talks to itself over loopback TCP, and its report says whether the bytes went by ring. It
//! tests library, broker, versions, memory and doorbells at once.

use super::Check;
use crate::args::TALK_TO_YOURSELF;
use serde::Deserialize;
use sidestep_error::chain;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Duration of the exchange: the upgrade needs the broker's answer, which takes well under a millisecond.
const TALK: Duration = Duration::from_millis(200);

/// The fields of the report that are needed.
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
        Err(error) => {
            let advice = "run a program with SIDESTEP_LOG=1 to see what the library says";
            Check::fails(name, chain(&error).to_string(), advice)
        }
    }
}

/// Why the trial could not be evaluated.
#[derive(Debug, thiserror::Error)]
enum TrialError {
    #[error("cannot find the path of this program")]
    OwnPlace(#[source] io::Error),
    #[error("cannot make a directory for the report")]
    Directory(#[source] io::Error),
    #[error("cannot run {}", program.display())]
    Start { program: PathBuf, source: io::Error },
    #[error("{status}: {said}")]
    Failed { status: ExitStatus, said: String },
    #[error("the library wrote no report: it was not loaded")]
    NoReport,
    #[error("the report is not readable")]
    Unreadable(#[from] serde_json::Error),
}

fn trial() -> Result<Line, TrialError> {
    let own = std::env::current_exe().map_err(TrialError::OwnPlace)?;
    // In a directory of its own, where nobody else can have made the file.
    let directory = tempfile::tempdir().map_err(TrialError::Directory)?;
    let report = directory.path().join("report.json");
    let mut command = Command::new(&own);
    command.args(["run", "--upgrade-after", "0ops", "--report"]).arg(&report).arg("--").arg(&own).arg(TALK_TO_YOURSELF);
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|source| TrialError::Start { program: own, source })?;
    let text = std::fs::read_to_string(&report);
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().into();
        return Err(TrialError::Failed { status: output.status, said });
    }
    let text = text.map_err(|_| TrialError::NoReport)?;
    Ok(serde_json::from_str(text.lines().last().unwrap_or_default())?)
}

/// The hidden command: requests and answers on one connection with both ends in this process.
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
