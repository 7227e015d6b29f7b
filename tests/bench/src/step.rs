//! Commands that change what a Service is, and how long it takes until a client sees it.

use crate::args::Args;
use crate::client::{Targets, one, try_one};
use crate::found::Found;
use crate::net;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Between a command that takes Services away and their last answer.
const GONE: Duration = Duration::from_secs(10);
/// Between two looks at a Service that is being set up, as a part of the time since: what is set up needs the processor more.
const PAUSE: f64 = 0.02;
const SHORTEST: Duration = Duration::from_millis(1);

/// From the start of a command to the first answer of a Service that it sets up, again and again.
pub fn appear(args: &Args) -> Result<(), String> {
    let mut targets = Targets::parse(&args.required::<String>("to")?)?;
    let (start, stop): (String, String) = (args.required("start")?, args.required("stop")?);
    let (time, limit) = (args.seconds()?, limit(args)?);
    args.finish()?;
    let (mut found, begin) = (Found::default(), Instant::now());
    while found.requests() == 0 || begin.elapsed() < time {
        if try_one(targets.next()).is_some() {
            return Err("the Service answers before it is set up".into());
        }
        let (since, mut running) = (Instant::now(), Step::start(&start)?);
        while try_one(targets.next()).is_none() {
            running.check()?;
            if since.elapsed() > limit {
                return Err(format!("'{start}': no Service after {} s", limit.as_secs_f64()));
            }
            std::thread::sleep(since.elapsed().mul_f64(PAUSE).max(SHORTEST));
        }
        found.add(since.elapsed());
        Step::start(&stop)?.succeed()?;
        running.end();
        gone(&mut targets)?;
    }
    net::say(&found.line(begin.elapsed()))
}

fn gone(targets: &mut Targets) -> Result<(), String> {
    let since = Instant::now();
    while try_one(targets.next()).is_some() {
        if since.elapsed() > GONE {
            return Err("the Service still answers after it was taken away".into());
        }
    }
    Ok(())
}

/// From the start of a command that exchanges one endpoint to the first answer of the new one, there and back.
pub fn change(args: &Args) -> Result<(), String> {
    let mut targets = Targets::parse(&args.required::<String>("to")?)?;
    let (there, back): (String, String) = (args.required("there")?, args.required("back")?);
    let pods: String = args.get("pods", "12,11".to_string())?;
    let (time, limit) = (args.seconds()?, limit(args)?);
    let idle = Duration::try_from_secs_f64(args.get("idle", 0.0)?).map_err(|e| format!("--idle: {e}"))?;
    args.finish()?;
    let numbers: Vec<u8> = pods.split(',').filter_map(|each| each.parse().ok()).collect();
    let [come, gone] = numbers[..] else { return Err(format!("--pods: '{pods}' are no two numbers")) };
    let (mut found, begin) = (Found::default(), Instant::now());
    while found.requests() == 0 || begin.elapsed() < time {
        // Both ways, so that all is as it was in the end.
        for (command, pod) in [(&there, come), (&back, gone)] {
            std::thread::sleep(idle);
            found.add(until_answered(command, pod, &mut targets, limit)?);
        }
    }
    net::say(&found.line(begin.elapsed()))
}

fn until_answered(command: &str, pod: u8, targets: &mut Targets, limit: Duration) -> Result<Duration, String> {
    if one(targets.next())? == pod {
        return Err(format!("pod {pod} answers before it is an endpoint"));
    }
    let (since, running) = (Instant::now(), Step::start(command)?);
    while one(targets.next())? != pod {
        if since.elapsed() > limit {
            return Err(format!("'{command}': pod {pod} has not answered after {} s", limit.as_secs_f64()));
        }
    }
    let took = since.elapsed();
    running.succeed()?;
    Ok(took)
}

/// Whether all of so many pods answer, and no other.
pub fn reach(args: &Args) -> Result<(), String> {
    let mut targets = Targets::parse(&args.required::<String>("to")?)?;
    let pods: u8 = args.required("pods")?;
    args.finish()?;
    let mut counts = vec![0u32; pods.into()];
    // That one of a dozen equally likely pods is missed so often happens once in 10^17 times.
    for _ in 0..40 * u32::from(pods) {
        let pod = one(targets.next())?;
        *counts.get_mut(usize::from(pod)).ok_or(format!("pod {pod} is no endpoint and has answered"))? += 1;
    }
    match counts.iter().position(|count| *count == 0) {
        Some(missed) => Err(format!("pod {missed} has answered none of the connections: {counts:?}")),
        None => Ok(()),
    }
}

fn limit(args: &Args) -> Result<Duration, String> {
    Duration::try_from_secs_f64(args.get("limit", 120.0)?).map_err(|e| format!("--limit: {e}"))
}

/// A command of the shell, and everything that it starts.
struct Step {
    text: String,
    child: Child,
}

impl Step {
    fn start(text: &str) -> Result<Step, String> {
        let mut command = Command::new("sh");
        command.args(["-c", text]).stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
        let child = command.spawn().map_err(|e| format!("sh: {e}"))?;
        Ok(Step { text: text.into(), child })
    }

    /// An error if it has ended and has failed.
    fn check(&mut self) -> Result<(), String> {
        match self.child.try_wait() {
            Ok(Some(status)) if !status.success() => Err(format!("'{}': {status}", self.text)),
            _ => Ok(()),
        }
    }

    fn succeed(mut self) -> Result<(), String> {
        let status = self.child.wait().map_err(|e| format!("'{}': {e}", self.text))?;
        if status.success() { Ok(()) } else { Err(format!("'{}': {status}", self.text)) }
    }

    fn end(mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // SAFETY: no pointers; the group is the child's own, and its number is nobody else's before it was waited for.
            unsafe { libc::kill(-(self.child.id() as i32), libc::SIGTERM) };
        }
        let _ = self.child.wait();
    }
}
