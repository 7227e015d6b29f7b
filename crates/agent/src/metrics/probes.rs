//! Answers of `/healthz` and `/readyz`.

use crate::message::QueryHandle;
use crate::signals::IsLoading;
use sidestep_http::Answer;
use std::fmt::Write;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The main thread answers within milliseconds, unless it is writing tables for tens of thousands of Services.
const PATIENCE: Duration = Duration::from_secs(5);
/// The thread of captured pods is busy for seconds when it takes over thousands of namespaces.
const PATIENCE_FOR_CAPTURES: Duration = Duration::from_secs(60);

/// Whether the process should go on. If not, a new one may help.
pub async fn alive(queries: &QueryHandle, is_loading: &IsLoading) -> Answer {
    // The main thread waits for the kernel, which checks the programs.
    if is_loading.load(Ordering::SeqCst) {
        return Answer::well("ok: programs are being loaded\n");
    }
    match queries.health(PATIENCE).await {
        Some(health) if health.captures_silent < PATIENCE_FOR_CAPTURES => Answer::well("ok\n"),
        Some(health) => {
            let seconds = health.captures_silent.as_secs();
            Answer::unavailable(format!("the thread of captured pods has not answered for {seconds} s\n"))
        }
        None => Answer::unavailable(format!("the main thread has not answered within {} s\n", PATIENCE.as_secs())),
    }
}

/// Whether everything that was asked for is in force.
pub async fn ready(queries: &QueryHandle) -> Answer {
    let Some(health) = queries.health(PATIENCE).await else {
        return Answer::unavailable("the main thread does not answer: it is loading programs, or hangs\n");
    };
    let mut text = String::new();
    for (what, is_so) in health.readiness {
        let sign = if is_so { '+' } else { '-' };
        let _ = writeln!(text, "[{sign}] {what}"); // a String takes everything
    }
    if health.is_ready() { Answer::well(text) } else { Answer::unavailable(text) }
}
