mod common;
#[test]
fn x() {
    let r = common::run();
    println!("{}", sidestep_lab::report::table(&r));
    println!("{}", sidestep_lab::report::markdown(&r));
    std::fs::write("/tmp/wt-report.html", sidestep_lab::report::page(&r)).unwrap();
    std::fs::write("/tmp/wt-report-small.html", sidestep_lab::report::page(&common::small())).unwrap();
    println!("{}", sidestep_lab::report::table(&common::small()));
    println!("{}", sidestep_lab::compare::compare(&r, &r));
}
