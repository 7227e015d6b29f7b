//! The commands of the CNI specification.

use crate::config::{Config, VERSIONS};
use crate::environment::{Command, Environment, Pod};
use crate::error::PluginError;
use crate::input;
use serde_json::json;
use sidestep_agent_api::{Admission, Answer, Applicant, AskError, Attachment, Limits, Question, ask_within};
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

/// A runtime writes the configuration before it waits for the answer.
const INPUT_PATIENCE: Duration = Duration::from_secs(10);
/// Of the configuration, with the previous result and all attachments of a large node.
const LONGEST_INPUT: u64 = 1 << 20;
/// The agent answers a pod's request, and its errors, with a few lines.
const LONGEST_ANSWER: u64 = 1 << 20;
/// The agent gives up so long before the plugin does, so that its reasons arrive.
const MARGIN: Duration = Duration::from_secs(1);
/// For a pod's end nobody waits.
const RELEASING: Duration = Duration::from_secs(5);

/// Runs the command, and prints its result.
pub fn run() -> ExitCode {
    let read = |name: &str| std::env::var(name);
    let mut version = VERSIONS[VERSIONS.len() - 1].to_string();
    let done = execute(&Environment::new(&read), &mut version);
    let (text, code) = match done {
        Ok(text) => (text, ExitCode::SUCCESS),
        Err(error) => (json!(error.report(&version)).to_string(), ExitCode::FAILURE),
    };
    // A result that the runtime did not get is a failure: it would start the pod without knowing its addresses.
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => code,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Returns what is to be printed. `version` becomes that of the configuration, if this program speaks it.
fn execute(environment: &Environment, version: &mut String) -> Result<String, PluginError> {
    let command = environment.command()?;
    if command == Command::Version {
        return Ok(json!({"cniVersion": version, "supportedVersions": VERSIONS}).to_string());
    }
    let config = Config::read(&input::read(io::stdin(), LONGEST_INPUT, INPUT_PATIENCE)?)?;
    match config.check_version() {
        Ok(()) => version.clone_from(&config.cni_version),
        // A pod must be able to end, whatever the configuration has become since its start.
        Err(_) if command == Command::Del => {}
        Err(error) => return Err(error),
    }
    match command {
        Command::Add => add(environment, &config),
        Command::Del => del(environment, &config).map(|()| String::new()),
        Command::Check => check(environment, &config).map(|()| String::new()),
        Command::Gc => collect(&config).map(|()| String::new()),
        Command::Status => status(&config).map(|()| String::new()),
        Command::Version => unreachable!("it was answered above"),
    }
}

fn add(environment: &Environment, config: &Config) -> Result<String, PluginError> {
    let (attachment, netns) = (attachment(environment, config)?, environment.netns()?);
    let Pod { namespace, name, uid } = environment.pod()?;
    let (addresses, timeout) = (config.addresses()?, config.timeout()?);
    let within_ms = timeout.saturating_sub(MARGIN).as_millis() as u64;
    let applicant = Applicant { attachment, netns, namespace, name, uid, addresses, within_ms };
    match ask(config, Admission::Admit(applicant), timeout).map_err(PluginError::Ask)? {
        Answer::Admitted(_) => Ok(config.prev_result()?.get().to_string()),
        _ => Err(PluginError::Answer),
    }
}

/// Succeeds whatever the agent says: it notices by itself when a namespace ends.
fn del(environment: &Environment, config: &Config) -> Result<(), PluginError> {
    let request = Admission::Release(attachment(environment, config)?);
    if let Err(error) = ask(config, request, RELEASING) {
        eprintln!("sidestep-cni: the agent was not told of the pod's end: {}", sidestep_error::chain(&error));
    }
    Ok(())
}

fn check(environment: &Environment, config: &Config) -> Result<(), PluginError> {
    config.prev_result()?;
    environment.netns()?;
    done(ask(config, Admission::Verify(attachment(environment, config)?), config.timeout()?))
}

fn collect(config: &Config) -> Result<(), PluginError> {
    let (network, valid) = (config.network()?.to_string(), config.valid()?);
    done(ask(config, Admission::Collect { network, valid }, config.timeout()?))
}

/// With code 50, a runtime starts no pods.
fn status(config: &Config) -> Result<(), PluginError> {
    match ask(config, Admission::Ready, config.timeout()?) {
        Ok(Answer::Done) => Ok(()),
        Ok(_) => Err(PluginError::Answer),
        Err(error) => Err(PluginError::NotReady(error)),
    }
}

fn done(answer: Result<Answer, AskError>) -> Result<(), PluginError> {
    match answer.map_err(PluginError::Unconfirmed)? {
        Answer::Done => Ok(()),
        _ => Err(PluginError::Answer),
    }
}

fn ask(config: &Config, request: Admission, time: Duration) -> Result<Answer, AskError> {
    ask_within(&config.socket(), &Question::Admission(request), Limits { time, bytes: LONGEST_ANSWER })
}

fn attachment(environment: &Environment, config: &Config) -> Result<Attachment, PluginError> {
    let (network, container) = (config.network()?.to_string(), environment.container()?);
    Ok(Attachment { network, container: container.id, interface: container.interface })
}
