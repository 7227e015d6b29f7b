//! The table of intercepted calls, as `crates/preload/src/calls/table.rs` has it.

/// Where the table of intercepted calls is.
pub const SOURCE: &str = "crates/preload/src/calls/table.rs";
/// Where the exports stand that are jumps.
pub const JUMPS: &str = "crates/preload/src/calls/jumps.rs";

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The symbol that is exported.
    pub name: String,
    /// Further symbols of libc for the same call.
    pub also: Vec<String>,
    /// Module of the hook.
    pub module: String,
    /// What is called if libc does not have the function.
    pub lacking: Lacking,
}

/// What is called where a libc lacks the function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lacking {
    /// `raw`, or `else`: something that does the same.
    StandIn,
    /// `later`: something that fails.
    Fails,
    /// The hook makes another call of the table.
    NoMatter,
}

/// What stands in `$make! { ... }`.
pub fn calls(source: &str) -> Vec<Call> {
    block(source, "$make! {\n", "\n}").split(';').filter(|s| !s.trim().is_empty()).map(call).collect()
}

/// `name(arguments) -> result = module::hook, also other, raw SYS_name, first function`
fn call(entry: &str) -> Call {
    let fail = || -> ! { panic!("{SOURCE}: not understood: {}", entry.trim()) };
    let Some((signature, behind)) = entry.rsplit_once(" = ") else { fail() };
    let Some((name, _)) = signature.trim().split_once('(') else { fail() };
    let mut parts = behind.split(", ");
    let Some((module, _)) = parts.next().and_then(|hook| hook.split_once("::")) else { fail() };
    let (mut also, mut lacking) = (Vec::new(), Lacking::NoMatter);
    for part in parts {
        match part.trim().split_once(' ') {
            Some(("also", other)) => also.push(other.to_string()),
            Some(("raw" | "else", _)) => lacking = Lacking::StandIn,
            Some(("later", _)) => lacking = Lacking::Fails,
            Some(("first", _)) => {}
            _ => fail(),
        }
    }
    let found = Call { name: name.trim().to_string(), also, module: module.to_string(), lacking };
    if !found.symbols().chain([&found.module]).all(|s| is_identifier(s)) {
        fail();
    }
    found
}

impl Call {
    /// All symbols that the line exports.
    pub fn symbols(&self) -> impl Iterator<Item = &String> {
        [&self.name].into_iter().chain(&self.also)
    }
}

/// The exports that are jumps: those of `jumps! { ... }`, and the functions written out beside it.
pub fn jumps(source: &str) -> Vec<String> {
    let listed = block(source, "\njumps! {", "\n}");
    let listed = listed.split(';').filter_map(|entry| Some(entry.split_once("=>")?.0.trim().to_string()));
    let written = source.split("#[unsafe(no_mangle)]").skip(1).filter_map(|rest| {
        let name = rest.split_once("extern \"C\" fn ")?.1.split('(').next()?;
        (!name.starts_with('$')).then(|| name.to_string())
    });
    let all: Vec<String> = listed.chain(written).collect();
    assert!(all.iter().all(|name| is_identifier(name)), "{SOURCE}: not understood: {all:?}");
    all
}

/// Every symbol that the library is to export, sorted.
pub fn exports(source: &str) -> Vec<String> {
    let calls = calls(source);
    let mut all: Vec<String> =
        calls.iter().flat_map(Call::symbols).cloned().chain(jumps(&crate::text(JUMPS))).collect();
    all.sort();
    all
}

/// The text between, without comments.
fn block(source: &str, begin: &str, end: &str) -> String {
    let (_, rest) = source.split_once(begin).unwrap_or_else(|| panic!("{SOURCE}: no {:?}", begin.trim()));
    let (body, _) = rest.split_once(end).unwrap_or_else(|| panic!("{SOURCE}: no end of {:?}", begin.trim()));
    body.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

fn is_identifier(s: &str) -> bool {
    !s.is_empty() && s.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
