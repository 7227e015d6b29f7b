//! The program as a runtime runs it, beside an agent that answers as it likes.

use crate::common::{Agent, Run, done, prev_result, run};
use serde_json::{Value, json};
use sidestep_agent_api::{Admission, Admitted, Answer, Applicant, Attachment, Refusal};
use std::time::{Duration, Instant};

fn attachment() -> Attachment {
    Attachment { network: "net".into(), container: "c1".into(), interface: "eth0".into() }
}

fn admitted() -> Answer {
    Answer::Admitted(Admitted { uncaptured: None })
}

#[test]
fn add_asks_for_the_pod_and_passes_the_result_on_unchanged() {
    for (version, family) in [("0.3.1", "\"version\":\"4\","), ("0.4.0", ""), ("1.0.0", ""), ("1.1.0", "")] {
        let agent = Agent::new(|_| Ok(admitted()));
        let result = format!(
            "{{ \"cniVersion\":\"{version}\", \"unknown\": 1.50,\n \"ips\":[{{{family}\"address\":\"10.1.0.5/16\"}}] }}"
        );
        let config = agent.config(version, json!({})).to_string();
        let config = config.replace("\"PREV\"", &result);
        let out = Run::new("ADD").text(&config).go();
        assert!(out.is_success(), "{out:?}");
        assert_eq!(out.stdout, result);
        let [Admission::Admit(asked)] = &agent.asked()[..] else { panic!("{:?}", agent.asked()) };
        let expected = Applicant {
            attachment: attachment(),
            netns: "/run/netns/c1".into(),
            namespace: "shop".into(),
            name: "web-0".into(),
            uid: Some("u1".into()),
            addresses: vec!["10.1.0.5".parse().unwrap()],
            within_ms: 14_000,
        };
        assert_eq!(*asked, expected);
    }
}

/// The agent is away, refuses, is slow, or is another program: in each case the pod does not start.
#[test]
fn add_fails_whenever_the_agent_does_not_say_yes() {
    let refusing = Agent::new(|_| Err(Refusal("no such pod".into())));
    let out = refusing.run("ADD");
    assert_eq!(out.error(), (100, "the pod does not start uncaptured".into()));
    assert_eq!(out.json()["details"], "the agent says: no such pod");
    assert_eq!(out.json()["cniVersion"], "1.1.0");

    let other_answer = Agent::new(|_| Ok(done()));
    assert_eq!(other_answer.run("ADD").error().0, 101);
    for text in ["", "yes", "{\"Ok\":\"admitted\"}", "{\"Ok\":{\"admitted\":{\"uncaptured\":1}}}", "[[[[[[["] {
        let liar = Agent::raw(text.as_bytes().to_vec());
        assert_eq!(liar.run("ADD").error().0, 101, "{text}");
    }
    let endless = Agent::raw(vec![b' '; 4 << 20]);
    assert_eq!(endless.run("ADD").error().0, 101);

    let nobody = prev_result(json!({"agentSocket": "/nonexistent/agent.sock"}));
    let out = run("ADD", &nobody);
    assert_eq!(out.error().0, 11);
    assert!(out.json()["details"].as_str().unwrap().contains("/nonexistent/agent.sock"), "{out:?}");

    let silent = Agent::silent();
    let begun = Instant::now();
    let out = run("ADD", &silent.config("1.1.0", json!({"timeoutSeconds": 2, "prevResult": {}})));
    assert_eq!(out.error().0, 11);
    assert!((Duration::from_secs(2)..Duration::from_secs(20)).contains(&begun.elapsed()), "{:?}", begun.elapsed());
}

#[test]
fn del_succeeds_with_and_without_an_agent() {
    let agent = Agent::new(|_| Ok(done()));
    assert_eq!((agent.run("DEL").stdout.as_str(), agent.run("DEL").is_success()), ("", true));
    assert_eq!(agent.asked(), [Admission::Release(attachment()), Admission::Release(attachment())]);
    // Without a namespace, a result and a pod's name.
    let config = json!({"cniVersion": "1.0.0", "name": "net", "type": "sidestep-cni", "agentSocket": "/nonexistent/a"});
    let out = Run::new("DEL").unset("CNI_NETNS").unset("CNI_ARGS").text(&config.to_string()).go();
    assert!(out.is_success() && out.stdout.is_empty(), "{out:?}");
    assert!(out.stderr.contains("was not told of the pod's end"), "{}", out.stderr);
    let refusing = Agent::new(|_| Err(Refusal("disk full".into())));
    assert!(refusing.run("DEL").is_success());
}

/// What would not start does end: the runtime deletes a pod by the plugins in the opposite order, so a failure here keeps it for ever.
#[test]
fn del_asks_for_no_version() {
    let agent = Agent::new(|_| Ok(done()));
    for version in [json!("0.3.1"), json!("9.9.9"), json!("")] {
        let out = run("DEL", &agent.config("1.1.0", json!({"cniVersion": version})));
        assert!(out.is_success() && out.stdout.is_empty(), "{version}: {out:?}");
    }
    let mut without = agent.config("1.1.0", json!({}));
    without.as_object_mut().unwrap().remove("cniVersion");
    let out = run("DEL", &without);
    assert!(out.is_success() && out.stdout.is_empty(), "{out:?}");
    assert_eq!(agent.asked(), vec![Admission::Release(attachment()); 4]);
}

#[test]
fn check_needs_the_agents_word() {
    let agent = Agent::new(|_| Ok(done()));
    assert!(agent.run("CHECK").is_success());
    assert_eq!(agent.asked(), [Admission::Verify(attachment())]);
    let refusing = Agent::new(|_| Err(Refusal("c1 was never admitted".into())));
    assert_eq!(refusing.run("CHECK").error().0, 100);
    let without = run("CHECK", &json!({"cniVersion": "1.1.0", "name": "net", "type": "sidestep-cni"}));
    assert_eq!(without.error().0, 7);
}

#[test]
fn gc_names_what_exists_in_this_network() {
    let agent = Agent::new(|_| Ok(done()));
    let valid = json!([{"containerID": "c1", "ifname": "eth0"}]);
    let config = agent.config("1.1.0", json!({"cni.dev/valid-attachments": valid}));
    let out = Run::new("GC").unset("CNI_CONTAINERID").unset("CNI_IFNAME").text(&config.to_string()).go();
    assert!(out.is_success() && out.stdout.is_empty(), "{out:?}");
    assert_eq!(agent.asked(), [Admission::Collect { network: "net".into(), valid: vec![attachment()] }]);
    // Nothing is forgotten on behalf of a runtime that does not say what exists.
    let out = run("GC", &agent.config("1.1.0", json!({})));
    assert_eq!((out.error().0, agent.asked().len()), (7, 1));
}

#[test]
fn status_is_the_agents() {
    let ready = Agent::new(|_| Ok(done()));
    assert!(ready.run("STATUS").is_success());
    assert_eq!(ready.asked(), [Admission::Ready]);
    let starting = Agent::new(|_| Err(Refusal("not attached yet".into())));
    assert_eq!(starting.run("STATUS").error(), (50, "no pod can be admitted".into()));
    let away = run("STATUS", &prev_result(json!({"agentSocket": "/nonexistent/a"})));
    assert_eq!(away.error().0, 50);
}

#[test]
fn version_needs_no_agent_and_no_input() {
    for text in ["{\"cniVersion\":\"0.1.0\"}", "", "{"] {
        let out = Run::new("VERSION").text(text).go();
        let expected =
            json!({"cniVersion": "1.1.0", "supportedVersions": ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"]});
        assert_eq!((out.is_success(), out.json()), (true, expected));
    }
}

#[test]
fn broken_input_has_the_code_of_the_specification() {
    let good = prev_result(json!({}));
    let with = |name: &str, value: Value| {
        let mut config = good.clone();
        config[name] = value;
        config.to_string()
    };
    let without = |name: &str| {
        let mut config = good.clone();
        config.as_object_mut().unwrap().remove(name);
        config.to_string()
    };
    let cases = [
        (String::new(), 6),
        ("{".into(), 6),
        ("[]".into(), 6),
        ("null".into(), 6),
        ("[".repeat(100_000), 6),
        (format!("{{\"x\":\"{}\"}}", "x".repeat(2 << 20)), 6),
        (with("cniVersion", json!("0.2.0")), 1),
        (with("cniVersion", json!("9.9.9")), 1),
        (without("cniVersion"), 1),
        (without("name"), 7),
        (without("prevResult"), 7),
        (with("prevResult", json!({"ips": [{"address": "here"}]})), 7),
        (with("timeoutSeconds", json!(0)), 7),
        (with("timeoutSeconds", json!(-1)), 6),
        (with("agentSocket", json!(7)), 6),
    ];
    for (text, code) in cases {
        let out = Run::new("ADD").text(&text).go();
        assert_eq!(out.error().0, code, "{}", &text[..text.len().min(200)]);
    }
}

#[test]
fn a_broken_environment_has_the_code_of_the_specification() {
    let config = prev_result(json!({})).to_string();
    for (name, value) in [
        ("CNI_COMMAND", "RESTART"),
        ("CNI_COMMAND", ""),
        ("CNI_CONTAINERID", ""),
        ("CNI_CONTAINERID", "../../etc/passwd"),
        ("CNI_IFNAME", ".."),
        ("CNI_NETNS", ""),
        ("CNI_NETNS", "relative"),
        ("CNI_ARGS", "K8S_POD_NAME=web"),
    ] {
        let out = Run::new("ADD").set(name, value).text(&config).go();
        let (code, msg) = out.error();
        assert!(code == 4 && msg.contains(name), "{name}={value}: {code} {msg}");
    }
    assert_eq!(Run::new("ADD").unset("CNI_ARGS").text(&config).go().error().0, 4);
}

/// Small and quick: a runtime runs it for each pod, one process each.
#[test]
fn it_takes_a_moment() {
    let agent = Agent::new(|_| Ok(admitted()));
    let config = agent.config("1.1.0", json!({"prevResult": {}}));
    let mut times: Vec<Duration> = (0..11)
        .map(|_| {
            let begun = Instant::now();
            assert!(run("ADD", &config).is_success());
            begun.elapsed()
        })
        .collect();
    times.sort();
    println!("ADD beside an agent that answers at once: {:?} in the middle, {:?} at most", times[5], times[10]);
    assert!(times[5] < Duration::from_millis(100), "{times:?}");
}
