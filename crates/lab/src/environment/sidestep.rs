//! The parts of Sidestep that a variant uses: a broker for rings, capture, splice, an agent.

use super::command::Cmd;
use super::error::EnvironmentError;
use super::process::run;
use super::ready::Ready;
use super::spec::{AGENT, AgentSpec, BROKER, BrokerSpec, CaptureSpec, Place, ProcessSpec, Spec, SpliceSpec};
use crate::context::{ProgramError, RunContext};
use crate::error::{AtPath, FileError};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Pins of capture and Services; each splice has its own directory.
pub fn pins(context: &RunContext, place: &Place) -> PathBuf {
    context.bpf().join(&place.prefix)
}

pub fn splice_pins(context: &RunContext, spec: &Spec, number: usize) -> PathBuf {
    context.bpf().join(format!("{}-splice-{number}", spec.place.prefix))
}

const READY_SECONDS: f64 = 20.0;
/// Programming tens of thousands of Services takes a while.
const AGENT_LIMIT: Duration = Duration::from_secs(120);

/// Daemons, which are started before everything else.
pub fn daemons(context: &RunContext, spec: &Spec) -> Result<Vec<(String, ProcessSpec)>, EnvironmentError> {
    let broker = spec.broker.as_ref().map(|settings| broker(settings, spec));
    let agent = spec.agent.as_ref().map(|agent| self::agent(context, spec, agent));
    broker.into_iter().chain(agent).collect()
}

/// Processes of several users share memory only if the broker's settings allow it.
fn broker(wanted: &BrokerSpec, spec: &Spec) -> Result<(String, ProcessSpec), EnvironmentError> {
    let (config, report) = (spec.place.dir.join("sidestep.toml"), spec.place.report());
    let users = spec.users();
    let allowed = if users.len() > 1 { format!("[[allow]]\nuids = {users:?}\n") } else { String::new() };
    write(&config, &format!("{}\n{allowed}", wanted.settings))?;
    write(&report, "")?;
    all_may_write(&report)?;
    let address = spec.place.broker();
    let words = [wanted.program.clone(), "--address".into(), text(&address), "--config".into(), text(&config)];
    let argv = [words.to_vec(), vec!["--idle-exit".into(), "0".into()]].concat();
    Ok((BROKER.into(), daemon(spec, BROKER, argv, Ready::path(&address))))
}

fn agent(context: &RunContext, spec: &Spec, agent: &AgentSpec) -> Result<(String, ProcessSpec), EnvironmentError> {
    let objects = spec.place.dir.join("objects");
    std::fs::create_dir_all(&objects).at("make the directory", &objects)?;
    write(&objects.join("services.yaml"), &agent.objects)?;
    for each in &agent.captures {
        let command = capture(context, spec, each, &["--print"])?;
        write(&objects.join(format!("{}.yaml", each.namespace)), &run(&command, None)?)?;
    }
    let cgroup = spec.place.cgroup.as_deref().ok_or(EnvironmentError::NeedsCgroup)?;
    let pins = pins(context, &spec.place);
    let options = [
        ("--config", text(&objects)),
        ("--cgroup", text(cgroup)),
        ("--pins", text(&pins)),
        ("--metrics", "off".into()),
        ("--socket", text(&spec.place.dir.join("agent.sock"))),
        ("--node-name", "node".into()),
    ];
    let words = options.into_iter().flat_map(|(name, value)| [name.to_string(), value]);
    let argv = [context.part(AGENT)?].into_iter().chain(words).chain(agent.options.iter().cloned()).collect();
    // The agent creates this directory in one step, when all tables are filled and all programs attached.
    Ok((
        AGENT.into(),
        daemon(spec, AGENT, argv, Ready { limit: AGENT_LIMIT, ..Ready::path(&pins.join("services/links")) }),
    ))
}

fn daemon(spec: &Spec, name: &str, argv: Vec<String>, ready: Ready) -> ProcessSpec {
    let program = argv[0].clone();
    let command = Cmd {
        name: name.into(),
        argv,
        namespace: Some(format!("{}-{}", spec.place.prefix, spec.namespaces[0])),
        cgroup: spec.place.cgroup.as_ref().map(|all| all.join(name)),
        ..Cmd::default()
    };
    ProcessSpec { command, program, ready, background: false }
}

/// Runs before the scenario's processes are started, so that their first connection is already redirected.
pub fn steer(context: &RunContext, spec: &Spec) -> Result<(), EnvironmentError> {
    for each in &spec.captures {
        run(&capture(context, spec, each, &[])?, None)?;
    }
    for (number, each) in spec.splices.iter().enumerate() {
        run(&splice(context, spec, each, number)?, None)?;
    }
    spec.agent.as_ref().map_or(Ok(()), |agent| wait_captured(context, spec, agent))
}

/// Commands that undo it, in order. If one fails, programs that are attached to a cgroup end with the cgroup.
pub fn unsteer(context: &RunContext, spec: &Spec) -> Result<Vec<Cmd>, ProgramError> {
    let detach = spec.agent.iter().map(|_| {
        let words = [
            "--detach",
            "--pins",
            &text(&pins(context, &spec.place)),
            "--socket",
            &text(&spec.place.dir.join("agent.sock")),
        ];
        Ok(call("agent --detach", context.part(AGENT)?, &words))
    });
    let captures = spec.captures.iter().map(|each| {
        let words = ["capture", "--netns", &each.namespace, "--pins", &text(&pins(context, &spec.place)), "--remove"];
        Ok(call("capture --remove", context.sidestep()?, &words))
    });
    let splices = (0..spec.splices.len()).map(|number| {
        let words = ["splice", "--remove", "--pins", &text(&splice_pins(context, spec, number))];
        Ok(call("splice --remove", context.sidestep()?, &words))
    });
    splices.chain(captures).chain(detach).collect()
}

fn capture(context: &RunContext, spec: &Spec, each: &CaptureSpec, more: &[&str]) -> Result<Cmd, EnvironmentError> {
    let cgroup = spec.place.cgroup.as_deref().ok_or(EnvironmentError::NeedsCgroup)?;
    let pins = text(&pins(context, &spec.place));
    let words = ["capture", "--netns", &each.namespace, "--pins", &pins, "--cgroup", &text(cgroup)].map(String::from);
    let more = more.iter().map(|word| word.to_string());
    let argv = [context.sidestep()?].into_iter().chain(words).chain(each.options.iter().cloned()).chain(more).collect();
    Ok(cmd("capture", argv))
}

fn splice(context: &RunContext, spec: &Spec, each: &SpliceSpec, number: usize) -> Result<Cmd, EnvironmentError> {
    let cgroup = spec.place.cgroup.as_deref().ok_or(EnvironmentError::NeedsCgroup)?;
    let pins = text(&splice_pins(context, spec, number));
    let words = ["splice", "--pins", &pins, "--cgroup", &text(cgroup)].map(String::from);
    let ports = each.ports.iter().flat_map(|port| ["--port".to_string(), port.clone()]);
    let namespace = each.namespace.iter().flat_map(|name| ["--netns".to_string(), name.clone()]);
    let argv = [context.sidestep()?]
        .into_iter()
        .chain(words)
        .chain(ports)
        .chain(namespace)
        .chain(each.options.iter().cloned());
    Ok(cmd("splice", argv.collect()))
}

/// The agent has programmed its Services; pods are captured a moment later, which `capture list` shows.
fn wait_captured(context: &RunContext, spec: &Spec, agent: &AgentSpec) -> Result<(), EnvironmentError> {
    let words = [
        "capture",
        "--list",
        "--json",
        "--pins",
        &text(&pins(context, &spec.place)),
        "--socket",
        &text(&spec.place.dir.join("agent.sock")),
    ];
    let command = call("capture --list", context.sidestep()?, &words);
    let until = std::time::Instant::now() + Duration::from_secs_f64(READY_SECONDS);
    while captured(&run(&command, None)?) < agent.captures.len() {
        if std::time::Instant::now() > until {
            return Err(EnvironmentError::NotCaptured { seconds: READY_SECONDS });
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn captured(listed: &str) -> usize {
    let listed: serde_json::Value = serde_json::from_str(listed).unwrap_or_default();
    let captures = listed["captures"].as_array().map(Vec::as_slice).unwrap_or_default();
    captures.iter().filter(|each| each["captured"] == true).count()
}

/// A program of Sidestep, with these arguments.
fn call(name: &str, program: String, words: &[&str]) -> Cmd {
    cmd(name, [program].into_iter().chain(words.iter().map(|word| word.to_string())).collect())
}

fn cmd(name: &str, argv: Vec<String>) -> Cmd {
    Cmd { name: name.into(), argv, ..Cmd::default() }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn write(path: &Path, text: &str) -> Result<(), FileError> {
    std::fs::write(path, text).at("write", path)
}

fn all_may_write(path: &Path) -> Result<(), FileError> {
    use std::os::unix::fs::PermissionsExt;
    let all = std::fs::Permissions::from_mode(0o666);
    std::fs::set_permissions(path, all).at("change the mode of", path)
}
