//! The report's page in a browser: nothing is logged or loaded, nothing overlaps, and the page fits a phone's screen.
//!
//! The page itself has no script. The probe runs in a surrounding page and inspects the frame with the report. The frame is as wide
//! as a phone, which a window cannot be.

use crate::common;

use sidestep_lab::report::page;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::LazyLock;

const PHONE: u32 = 390;
const DESKTOP: u32 = 1280;

/// Three tests use it.
static PAGE: LazyLock<String> = LazyLock::new(|| page(&common::run()));

/// Writes its result as JSON into the title, which `--dump-dom` shows.
const PROBE: &str = include_str!("common/probe.js");

/// What Chromium reports of a page, and what the probe reports.
struct Look {
    log: String,
    found: serde_json::Value,
}

impl Look {
    fn number(&self, name: &str) -> u64 {
        self.found[name].as_u64().unwrap_or_else(|| panic!("no number {name} in {}", self.found))
    }

    fn list(&self, name: &str) -> Vec<String> {
        let all = self.found[name].as_array().unwrap_or_else(|| panic!("no list {name} in {}", self.found));
        all.iter().map(ToString::to_string).collect()
    }

    /// Messages in the console, including violations of the page's content security policy.
    fn complaints(&self) -> Vec<&str> {
        self.log.lines().filter(|line| line.contains(":CONSOLE")).collect()
    }
}

/// Writes the page to a file that stays, for viewing.
fn written(name: &str, text: &str) -> PathBuf {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("pages");
    fs::create_dir_all(&directory).expect("a directory for pages");
    let path = directory.join(format!("{name}.html"));
    fs::write(&path, text).expect("a page");
    path
}

fn chromium(arguments: &[String]) -> Output {
    let profile = tempfile::tempdir().expect("a directory for the profile");
    let mut command = Command::new("chromium");
    command.args(["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr"]);
    command.arg(format!("--user-data-dir={}", profile.path().display())).args(arguments);
    command.output().expect("this test needs a browser: apt-get install chromium")
}

/// Opens a page in a frame of that width.
fn look(name: &str, page: &str, width: u32, dark: bool) -> Look {
    let frame = maud::html! {
        (maud::DOCTYPE)
        meta charset="utf-8";
        meta name="color-scheme" content="light dark";
        iframe width=(width) height="844" style="border:0" srcdoc=(page) {}
        script { (maud::PreEscaped(PROBE)) }
    };
    written(name, page);
    let path = written(&format!("{name}-frame"), &frame.into_string());
    // 0 is dark, 1 is light.
    let scheme = format!("--blink-settings=preferredColorScheme={}", u8::from(!dark));
    let url = format!("file://{}", path.display());
    let output = chromium(&["--dump-dom".into(), scheme, "--window-size=1400,900".into(), url]);
    let dom = String::from_utf8_lossy(&output.stdout).into_owned();
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    let found = dom.split_once("<title>").and_then(|(_, rest)| rest.split_once("</title>"));
    let found = found.unwrap_or_else(|| panic!("{name}: the probe did not answer: {dom:.2000}\n{log}")).0;
    let found = serde_json::from_str(&found.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"));
    Look { log, found: found.expect("the probe answers in JSON") }
}

/// What must hold for every page.
fn sound(look: &Look) {
    assert_eq!(look.complaints(), Vec::<&str>::new());
    assert_eq!(look.list("overlapping"), Vec::<String>::new(), "labels lie on each other");
    assert_eq!(look.list("clipped"), Vec::<String>::new(), "labels are cut off");
    assert_eq!(look.list("nameless"), Vec::<String>::new(), "drawings without a name");
    assert_eq!(look.number("loaded"), 0, "the page has fetched something");
    assert!(look.number("scroll") <= look.number("width"), "wider than its window: {}", look.found);
}

#[test]
fn fits_a_phone_in_the_light() {
    let look = look("phone-light", &PAGE, PHONE, false);
    sound(&look);
    assert_eq!(look.number("width"), u64::from(PHONE));
    assert!(look.found["smallest"].as_f64().expect("a size") >= 9.5, "too small to read: {}", look.found);
    assert_eq!(look.found["paper"], "rgb(255, 255, 255)");
}

#[test]
fn is_dark_where_that_is_preferred() {
    let look = look("desktop-dark", &PAGE, DESKTOP, true);
    sound(&look);
    assert_eq!(look.found["paper"], "rgb(13, 17, 23)");
    assert!(look.found["contrast"].as_f64().expect("a ratio") >= 4.5, "faint text: {}", look.found);
}

#[test]
fn shows_everything_that_was_measured() {
    let run = common::run();
    let look = look("desktop-light", &PAGE, DESKTOP, false);
    sound(&look);
    let (cells, variants, judged) = (run.cells.len(), run.variants.len(), run.scenario.judged.len());
    assert_eq!(look.number("boxes"), (cells * variants * judged) as u64);
    assert_eq!(look.number("percentiles"), (cells * variants) as u64);
    assert_eq!(look.number("bars"), cells as u64);
    // Rate and p50 are judged; p90 is always shown.
    assert_eq!(look.number("series"), ((judged + 1) * variants) as u64);
    assert_eq!(look.number("verdicts"), (cells * judged * (variants - 1)) as u64);
    // Each cell has one repeated trial and one disturbed trial.
    assert_eq!(look.number("hollow"), (2 * cells * judged) as u64);
    assert!(look.found["contrast"].as_f64().expect("a ratio") >= 4.5, "faint text: {}", look.found);
}

#[test]
fn a_crowded_page_fits_a_phone_too() {
    let look = look("crowded", &page(&common::crowded()), PHONE, false);
    sound(&look);
    // Against connections for each size of bodies, and against that size for each number of connections.
    assert_eq!(look.number("series"), 10 * 5 * (2 + 2));
}

#[test]
fn the_smallest_run_is_a_page_too() {
    sound(&look("small", &page(&common::small()), PHONE, true));
}

/// Tests the check itself: it must reject a page that logs errors, loads files, overflows and overlaps.
#[test]
fn an_unsound_page_is_found_out() {
    let page = r#"<!DOCTYPE html><meta http-equiv="Content-Security-Policy" content="default-src 'none'">
        <img src="http://192.0.2.1/x.png"><pre>wide wide wide wide wide wide wide wide wide wide wide wide wide wide</pre>
        <svg viewBox="0 0 100 20"><text x="0" y="10">one</text><text x="2" y="10">two</text><text x="90" y="9">cut</text></svg>
        <script>console.error("never run")</script>"#;
    let look = look("unsound", page, PHONE, false);
    let refused = look.complaints().iter().filter(|line| line.contains("Content Security Policy")).count();
    assert!(refused >= 2, "the picture and the script are refused: {}", look.log);
    assert!(!look.list("overlapping").is_empty() && !look.list("clipped").is_empty(), "{}", look.found);
    assert!(!look.list("nameless").is_empty() && look.number("scroll") > look.number("width"), "{}", look.found);
    let unguarded = look_unguarded();
    assert!(unguarded.complaints().iter().any(|line| line.contains("an error of its own")), "{}", unguarded.log);
}

fn look_unguarded() -> Look {
    look("unguarded", "<!DOCTYPE html><script>console.error('an error of its own')</script>", PHONE, false)
}
