//! One part of the report, bounded in time and size.

use sidestep_error::chain;
use std::error::Error;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::spawn;
use std::time::{Duration, Instant};

/// Longest time for one part. The trial of `doctor` takes a second; an agent that writes large tables may take longer.
const LONGEST: Duration = Duration::from_secs(15);
/// Most bytes of one part. The metrics of an agent with ten thousand Services are larger, and cut.
const LARGEST: u64 = 8 << 20;
/// Most bytes of what a command says on stderr.
const COMPLAINT: u64 = 4 << 10;
/// Interval at which a command is asked whether it has ended, once its output has.
const LOOK: Duration = Duration::from_millis(5);

/// The text of a part, or why there is none.
pub type Text = Result<String, Box<dyn Error + Send + Sync>>;

/// Where a part comes from.
pub enum Source {
    /// The output of a command.
    Command(Command),
    /// Lines of a command's output that contain one of these words in lower case.
    Lines(Command, &'static [&'static str]),
    /// What a function says, which may block.
    Function(Box<dyn FnOnce() -> Text + Send>),
}

/// What was had of a part.
pub struct Gathered {
    pub bytes: Vec<u8>,
    /// Why it is incomplete.
    pub trouble: Option<String>,
}

impl Gathered {
    pub fn missing(trouble: String) -> Gathered {
        Gathered { bytes: Vec::new(), trouble: Some(trouble) }
    }
}

pub fn gather(source: Source) -> Gathered {
    match source {
        Source::Command(command) => output(command, LONGEST),
        Source::Lines(command, words) => {
            let mut gathered = output(command, LONGEST);
            gathered.bytes = lines_with(&gathered.bytes, words);
            gathered
        }
        Source::Function(function) => answer(function, LONGEST),
    }
}

/// A function that takes too long goes on in its thread, which ends with this process.
fn answer(function: Box<dyn FnOnce() -> Text + Send>, longest: Duration) -> Gathered {
    let (sender, receiver) = channel();
    spawn(move || sender.send(function()));
    match receiver.recv_timeout(longest) {
        Ok(Ok(text)) => cut(text.into_bytes()),
        Ok(Err(error)) => Gathered::missing(chain(&*error).to_string()),
        Err(RecvTimeoutError::Timeout) => Gathered::missing(too_long(longest)),
        Err(RecvTimeoutError::Disconnected) => Gathered::missing("it failed".into()),
    }
}

fn cut(mut bytes: Vec<u8>) -> Gathered {
    let is_cut = bytes.len() as u64 > LARGEST;
    bytes.truncate(LARGEST as usize);
    Gathered { bytes, trouble: is_cut.then(|| format!("cut after {LARGEST} bytes")) }
}

fn too_long(longest: Duration) -> String {
    format!("stopped after {} ms", longest.as_millis())
}

fn output(mut command: Command, longest: Duration) -> Gathered {
    let deadline = Instant::now() + longest;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(e) => return Gathered::missing(format!("{}: {e}", command.get_program().display())),
    };
    let said = child.stdout.take().map(|pipe| read(pipe, LARGEST + 1));
    let complaint = child.stderr.take().map(|pipe| read(pipe, COMPLAINT));
    let until = |receiver: Option<Receiver<Vec<u8>>>| {
        let left = deadline.saturating_duration_since(Instant::now());
        receiver.and_then(|receiver| receiver.recv_timeout(left).ok())
    };
    let bytes = until(said);
    let complaint = until(complaint).unwrap_or_default();
    let ended = ended(&mut child, deadline);
    let Some(bytes) = bytes else { return Gathered::missing(too_long(longest)) };
    let mut gathered = cut(bytes);
    if gathered.trouble.is_none() && ended.as_deref() != Some("exit status: 0") {
        let how = ended.map_or_else(|| too_long(longest), |how| format!("ended with {how}"));
        let complaint = String::from_utf8_lossy(&complaint);
        gathered.trouble = Some(format!("{how}: {}", complaint.trim().replace('\n', "; ")));
    }
    gathered
}

/// Reads in a thread of its own, which ends with the pipe's last writer.
fn read(pipe: impl Read + Send + 'static, most: u64) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    spawn(move || {
        let mut bytes = Vec::new();
        // Half an output is better than none.
        let _ = pipe.take(most).read_to_end(&mut bytes);
        let _ = sender.send(bytes); // nobody waits any more
    });
    receiver
}

/// How it ended. None: it was killed at the deadline.
fn ended(child: &mut Child, deadline: Instant) -> Option<String> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status.to_string()),
            Ok(None) if Instant::now() < deadline => std::thread::sleep(LOOK),
            _ => break,
        }
    }
    // It may have ended just now.
    let _ = child.kill();
    let _ = child.wait();
    None
}

fn lines_with(bytes: &[u8], words: &[&str]) -> Vec<u8> {
    let text = String::from_utf8_lossy(bytes);
    let has = |line: &&str| words.iter().any(|word| line.to_lowercase().contains(word));
    text.lines().filter(has).map(|line| format!("{line}\n")).collect::<String>().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn output_is_kept_and_a_failure_is_told_with_its_reason() {
        let gathered = output(shell("echo all well"), LONGEST);
        assert_eq!((gathered.bytes.as_slice(), gathered.trouble), (&b"all well\n"[..], None));
        let gathered = output(shell("echo half; echo no agent >&2; exit 3"), LONGEST);
        assert_eq!(gathered.bytes, b"half\n");
        assert_eq!(gathered.trouble.as_deref(), Some("ended with exit status: 3: no agent"));
        let gathered = output(Command::new("/nonexistent/program"), LONGEST);
        assert!(gathered.trouble.expect("trouble").starts_with("/nonexistent/program: No such file"));
    }

    #[test]
    fn what_hangs_is_stopped() {
        let (began, limit) = (Instant::now(), Duration::from_millis(200));
        for script in ["exec sleep 60", "exec >/dev/null 2>&1; exec sleep 60"] {
            let gathered = output(shell(script), limit);
            assert!(gathered.trouble.expect("trouble").starts_with("stopped after 200 ms"), "{script}");
        }
        let forever = Box::new(|| {
            loop {
                std::thread::park();
            }
        });
        assert_eq!(answer(forever, limit).trouble.as_deref(), Some("stopped after 200 ms"));
        assert!(began.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn what_does_not_end_is_cut() {
        let gathered = output(shell("exec cat /dev/zero"), LONGEST);
        assert_eq!((gathered.bytes.len() as u64, gathered.trouble.is_some()), (LARGEST, true));
    }

    #[test]
    fn only_lines_of_the_subject_are_kept() {
        let lines = b"eth0: up\nBPF: verifier\nuser alice logged in\nxdp on eth0\n";
        assert_eq!(lines_with(lines, &["bpf", "xdp"]), b"BPF: verifier\nxdp on eth0\n");
    }
}
