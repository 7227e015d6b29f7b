//! What we build from may be used as we say, and comes from one registry.

use sidestep_shape::packages::Packages;
use spdx::{Expression, Licensee, ParseMode};

/// Terms under which what we build may be handed on by anybody as MIT or Apache-2.0. OpenSSL's and copyleft ones are not among
/// them; libbpf, which the kernel half links, is BSD-2-Clause by our choice.
const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

#[test]
fn every_licence_is_one_of_those_that_we_may_use() {
    let allowed: Vec<Licensee> = ALLOWED.iter().map(|name| Licensee::parse(name).expect("an SPDX name")).collect();
    let (packages, mut wrong) = (Packages::load(), Vec::new());
    assert!(packages.terms().len() > packages.own().len(), "nothing but our own");
    for package in packages.terms() {
        let text = package.licence.as_deref().unwrap_or("none");
        let expression = Expression::parse_mode(text, ParseMode::LAX);
        let fits = expression.is_ok_and(|e| e.evaluate(|term| allowed.iter().any(|one| one.satisfies(term))));
        if !fits {
            wrong.push(format!("{}: {text}", package.name));
        }
    }
    assert!(wrong.is_empty(), "licences that are not among {ALLOWED:?}:\n{}", wrong.join("\n"));
}

#[test]
fn everything_is_ours_or_the_registrys() {
    let packages = Packages::load();
    let others = packages.terms().iter().filter(|p| p.source.as_ref().is_some_and(|s| !s.starts_with("registry+")));
    let others: Vec<_> = others.map(|p| format!("{} from {:?}", p.name, p.source)).collect();
    assert!(others.is_empty(), "{others:?}");
}
