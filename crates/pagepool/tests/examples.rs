//! Every example of this crate runs to its end; each checks what it shows.

#[path = "../examples/custom_provider.rs"]
mod custom_provider;
#[path = "../examples/handover.rs"]
mod handover;

#[test]
fn handover_returns_every_page() {
    handover::main().expect("it runs");
}

#[test]
fn a_custom_provider_serves_a_pool() {
    custom_provider::main().expect("it runs");
}

/// An example that no test runs is one that goes stale.
#[test]
fn each_example_is_run_here() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
    for file in std::fs::read_dir(folder).expect("the folder is there") {
        let name = file.expect("it can be read").file_name().into_string().expect("an ASCII name");
        let module = format!("mod {};", name.trim_end_matches(".rs"));
        assert!(include_str!("examples.rs").contains(&module), "{name} is not run by tests/examples.rs");
    }
}
